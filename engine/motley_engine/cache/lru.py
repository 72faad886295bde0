"""Least-recently-used order over tree nodes whose times of use change all the time."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from motley_engine.cache.prefix import Node

_SMALL = 256


class LruHeap:
    """A heap that forgives stale entries: each node is in it at most once, and is put back when it was used since.

    ``used`` reads a node's time of last use. Ties go to the node pushed first. Nodes taken out of the tree are swept
    out whenever the heap has doubled, so it never outgrows the tree for long.
    """

    def __init__(self, used: Callable[[Node], int]) -> None:
        self._used = used
        self._heap: list[tuple[int, int, Node]] = []
        self._members: set[int] = set()
        self._serial = 0
        self._sweep_at = _SMALL

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, node: Node) -> None:
        if id(node) in self._members:
            return
        if len(self._heap) >= self._sweep_at:
            self._sweep()
        self._members.add(id(node))
        self._put(node)

    def pop(self) -> Node | None:
        """The node whose last use is oldest, or None; whether it may still be evicted is the caller's to check."""
        while self._heap:
            used, _, node = heapq.heappop(self._heap)
            if used == self._used(node):
                self._members.discard(id(node))
                return node
            self._put(node)
        return None

    def clear(self) -> None:
        self._heap.clear()
        self._members.clear()

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2].parent is not None]
        heapq.heapify(self._heap)
        self._members = {id(node) for _, _, node in self._heap}
        self._sweep_at = max(_SMALL, 2 * len(self._heap))

    def _put(self, node: Node) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (self._used(node), self._serial, node))
