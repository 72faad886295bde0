"""What the scheduler needs of a prefix cache, and the cache that caches nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from motley_engine.executor.step import IntArray


def _ints() -> IntArray:
    return np.empty(0, np.int32)


@dataclass(slots=True, eq=False)
class Node:
    """Tokens of one edge of the tree, whole pages only, and the pages that hold their K/V.

    ``full`` and ``window`` have one entry per page; 0 = no page (no such layers, or a window page dropped since).
    ``locks`` counts the running rows at or below this node. ``used`` and ``window_used`` are times of last use.
    """

    parent: Node | None = None
    tokens: IntArray = field(default_factory=_ints)
    full: IntArray = field(default_factory=_ints)
    window: IntArray = field(default_factory=_ints)
    children: dict[bytes, Node] = field(default_factory=dict)
    locks: int = 0
    used: int = 0
    window_used: int = 0


@dataclass(slots=True)
class Match:
    """The longest usable cached prefix of a token sequence.

    ``length`` counts tokens, a multiple of the page size. ``full`` and ``window`` are its pages; window entries older
    than the window are 0. ``unlocked`` full pages could be evicted now and no longer once ``node`` is locked.
    """

    node: Node | None
    length: int = 0
    full: IntArray = field(default_factory=_ints)
    window: IntArray = field(default_factory=_ints)
    unlocked: int = 0


class PrefixCache(Protocol):
    """Finds and keeps prefixes. ``evictable`` full pages are held by it alone; ``version`` changes with its content."""

    evictable: int
    version: int

    def match(self, tokens: IntArray, limit: int) -> Match:
        """Longest usable prefix of at most ``limit`` tokens; counts as a use."""
        ...

    def probe(self, tokens: IntArray, limit: int) -> int:
        """Length of what ``match`` would find; not a use, changes nothing."""
        ...

    def insert(self, tokens: IntArray, full: IntArray, window: IntArray) -> Node | None:
        """Keep whole pages of tokens; pages for places it has already stay with the caller alone."""
        ...

    def lock(self, node: Node) -> None:
        """Protect the path to the node from eviction."""
        ...

    def unlock(self, node: Node) -> None:
        """Undo one ``lock``."""
        ...

    def evict_full(self, count: int) -> None:
        """Free at least ``count`` full pages, least recently used first, as far as unlocked ones go."""
        ...

    def evict_window(self, count: int) -> None:
        """Free at least ``count`` window pages, least recently used first, as far as idle ones go."""
        ...

    def clear(self) -> None:
        """Forget everything; no node may be locked."""
        ...

    def nodes(self) -> Iterator[Node]:
        """All nodes that hold tokens."""
        ...


class NoPrefixCache:
    """No reuse between requests (``--disable-radix-cache``)."""

    evictable = 0
    version = 0

    def match(self, tokens: IntArray, limit: int) -> Match:
        return Match(None)

    def probe(self, tokens: IntArray, limit: int) -> int:
        return 0

    def insert(self, tokens: IntArray, full: IntArray, window: IntArray) -> Node | None:
        return None

    def lock(self, node: Node) -> None:
        raise AssertionError("nothing to lock: no prefix is ever cached")

    def unlock(self, node: Node) -> None:
        raise AssertionError("nothing to unlock: no prefix is ever cached")

    def evict_full(self, count: int) -> None:
        return

    def evict_window(self, count: int) -> None:
        return

    def clear(self) -> None:
        return

    def nodes(self) -> Iterator[Node]:
        return iter(())
