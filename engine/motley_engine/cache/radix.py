"""Radix tree over token ids, in whole pages: finds the longest cached prefix, keeps new ones, evicts old ones.

It holds one count of every page it keeps, in both pools. Rows that run hold counts of their own, so eviction never
takes a page away from a row: a locked path is not evicted at all, and a window page dropped from a node lives on as
long as a row holds it.

Window pages come and go independently. A prefix of length L can be resumed only if every page that covers the last
``window`` tokens before L still has its window page; older holes do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from motley_engine.cache.lru import LruHeap
from motley_engine.cache.pages import PagePool
from motley_engine.cache.prefix import Match, Node
from motley_engine.executor.step import IntArray


class RadixTree:
    """Prefix cache over a full and a window pool; either may be empty. ``window`` is in tokens."""

    def __init__(self, full: PagePool, window: PagePool, page_size: int, window_tokens: int) -> None:
        self._full = full
        self._window = window
        self._page = page_size
        self._span = -(-window_tokens // page_size)
        self._root = Node()
        self._now = 0
        self._leaves = LruHeap(lambda node: node.used)
        self._windows = LruHeap(lambda node: node.window_used)
        self.evictable = 0
        self.version = 0

    def match(self, tokens: IntArray, limit: int) -> Match:
        path, pages = self._walk(tokens, limit)
        usable = self._usable(path, pages)
        node = self._cut(path, usable)
        full, window, unlocked = self._collect(node, usable)
        return Match(node, usable * self._page, full, window, unlocked)

    def probe(self, tokens: IntArray, limit: int) -> int:
        return self._usable(*self._walk(tokens, limit)) * self._page

    def insert(self, tokens: IntArray, full: IntArray, window: IntArray) -> Node:
        """Keep ``tokens`` (whole pages) and adopt the pages that the tree lacks.

        Who holds what afterwards, in pages of the sequence:

            0 ................ known ................ end
            | full: tree's own   | full: caller + tree  |
            | window: tree's own | window: caller + tree where given
            |  or adopted to fill a hole

        The caller keeps all its counts; duplicates of what the tree knew die when the caller lets go.
        """
        path, known = self._walk(tokens, len(tokens))
        node = self._cut(path, known)
        self._fill_holes(node, window[:known])
        if known < len(full):
            node = self._grow(node, tokens[known * self._page :], full[known:], window[known:])
        self._touch(node)
        return node

    def lock(self, node: Node) -> None:
        for step in _up(node):
            if step.locks == 0:
                self.evictable -= self._weight(step)
            step.locks += 1

    def unlock(self, node: Node) -> None:
        for step in _up(node):
            if step.locks < 1:
                raise AssertionError("a node was unlocked more often than locked")
            step.locks -= 1
            if step.locks == 0:
                self.evictable += self._weight(step)
                self._offer(step)

    def evict_full(self, count: int) -> None:
        """Remove whole leaves until ``count`` full pages are free; their window pages go with them."""
        freed = 0
        while freed < count and (leaf := self._leaves.pop()) is not None:
            if leaf.parent is not None and not leaf.children and not leaf.locks:
                freed += self._remove(leaf)

    def evict_window(self, count: int) -> None:
        """Drop window pages, oldest node first and from its front, until ``count`` are free.

        The front goes first because the end of a node is where other sequences resume. A node whose pages rows still
        hold counts as used now.
        """
        freed, passed = 0, []
        while freed < count and (node := self._windows.pop()) is not None:
            if node.parent is None:
                continue
            kept = np.flatnonzero(node.window)
            idle = kept[self._window.holders(node.window[kept]) == 1][: count - freed]
            freed += self._window.abandon(node.window[idle])
            node.window[idle] = 0
            self.version += len(idle) > 0
            if len(idle) < len(kept):
                passed.append(node)
                node.window_used = node.window_used if len(idle) else self._now
            self._prune(node)
        for node in passed:
            self._windows.push(node)

    def clear(self) -> None:
        for node in list(self.nodes()):
            if node.locks:
                raise AssertionError("the cache was cleared while a row uses it")
            self._abandon(node)
            node.parent = None
        self._root = Node()
        self._leaves.clear()
        self._windows.clear()
        self.evictable = 0
        self.version += 1

    def nodes(self) -> Iterator[Node]:
        stack = list(self._root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def _walk(self, tokens: IntArray, limit: int) -> tuple[list[Node], int]:
        """Nodes along the longest known prefix of at most ``limit`` tokens, the last maybe in part, and its pages."""
        path, node, done = [], self._root, 0
        stop = min(limit, len(tokens)) // self._page * self._page
        while done < stop:
            child = node.children.get(self._key(tokens[done:stop]))
            if child is None:
                break
            common = _common(child.tokens, tokens[done:stop]) // self._page * self._page
            path.append(child)
            done += common
            if common < len(child.tokens):
                break
            node = child
        return path, done // self._page

    def _usable(self, path: list[Node], pages: int) -> int:
        """Longest resumable prefix in pages: the last ``span`` pages before it all have their window page."""
        if not self._window.total or not pages:
            return pages
        present = np.concatenate([node.window for node in path])[:pages] != 0
        index = np.arange(pages)
        last_hole = np.maximum.accumulate(np.where(present, -1, index))
        whole = index - last_hole >= np.minimum(index + 1, self._span)
        good = np.flatnonzero(whole)
        return int(good[-1]) + 1 if len(good) else 0

    def _cut(self, path: list[Node], pages: int) -> Node:
        """The node that ends exactly after ``pages`` pages of the path, split off if need be."""
        node, done = self._root, 0
        for step in path:
            if done == pages:
                break
            node = step if done + len(step.full) <= pages else self._split(step, pages - done)
            done += len(node.full)
        return node

    def _split(self, node: Node, pages: int) -> Node:
        """Put the first ``pages`` pages into a new parent; ``node`` keeps the end, so handles to it stay true."""
        tokens = pages * self._page
        head = Node(
            node.parent,
            node.tokens[:tokens],
            node.full[:pages],
            node.window[:pages],
            {self._key(node.tokens[tokens:]): node},
            node.locks,
            node.used,
            node.window_used,
        )
        assert node.parent is not None
        node.parent.children[self._key(node.tokens)] = head
        node.parent = head
        node.tokens, node.full, node.window = node.tokens[tokens:], node.full[pages:], node.window[pages:]
        self._offer(head)
        return head

    def _collect(self, node: Node, pages: int) -> tuple[IntArray, IntArray, int]:
        """Pages of the path that ends at ``node``, marked as used; window pages only as far as the window reaches."""
        full, window = np.zeros(pages, np.int32), np.zeros(pages, np.int32)
        unlocked, end, reach = 0, pages, max(pages - self._span, 0)
        self._now += 1
        for step in _up(node):
            start = end - len(step.full)
            full[start:end], window[start:end] = step.full, step.window
            unlocked += 0 if step.locks else self._weight(step)
            step.used = self._now
            if end > reach:
                step.window_used = self._now
            end = start
        window[:reach] = 0
        return full, window, unlocked

    def _touch(self, node: Node) -> None:
        self._now += 1
        for step in _up(node):
            step.used = self._now

    def _fill_holes(self, node: Node, window: IntArray) -> None:
        """Adopt the caller's window pages where the path up to ``node`` has lost its own."""
        end = len(window)
        for step in _up(node):
            given = window[end - len(step.full) : end]
            holes = (step.window == 0) & (given != 0)
            if holes.any():
                self._window.adopt(given[holes])
                step.window[holes] = given[holes]
                step.window_used = self._now
                self._offer(step)
                self.version += 1
            end -= len(step.full)

    def _grow(self, parent: Node, tokens: IntArray, full: IntArray, window: IntArray) -> Node:
        self._full.adopt(full[full != 0])
        self._window.adopt(window[window != 0])
        leaf = Node(parent, tokens.copy(), full.copy(), window.copy(), used=self._now, window_used=self._now)
        parent.children[self._key(tokens)] = leaf
        self.evictable += self._weight(leaf)
        self.version += 1
        self._offer(leaf)
        return leaf

    def _remove(self, leaf: Node) -> int:
        """Take an unlocked leaf out; returns the full pages freed."""
        parent = leaf.parent
        assert parent is not None
        del parent.children[self._key(leaf.tokens)]
        leaf.parent = None
        self.evictable -= self._weight(leaf)
        self.version += 1
        if parent is not self._root:
            self._offer(parent)
        return self._abandon(leaf)

    def _abandon(self, node: Node) -> int:
        self._window.abandon(node.window[node.window != 0])
        return self._full.abandon(node.full[node.full != 0])

    def _prune(self, node: Node) -> None:
        """Remove leaves without any window page, upwards: no sequence can resume in them."""
        while node.parent is not None and not node.children and not node.locks and not node.window.any():
            parent = node.parent
            self._remove(node)
            node = parent

    def _offer(self, node: Node) -> None:
        """Let the evictions know of a node they may take, now or later."""
        if self._full.total and not node.children and not node.locks:
            self._leaves.push(node)
        if self._window.total and node.window.any():
            self._windows.push(node)

    def _weight(self, node: Node) -> int:
        return len(node.full) if self._full.total else 0

    def _key(self, tokens: IntArray) -> bytes:
        return tokens[: self._page].tobytes()


def _up(node: Node) -> Iterator[Node]:
    """The node and its ancestors, without the root."""
    while node.parent is not None:
        yield node
        node = node.parent


def _common(a: IntArray, b: IntArray) -> int:
    """Length of the common prefix."""
    n = min(len(a), len(b))
    differ = a[:n] != b[:n]
    first = int(differ.argmax()) if n else 0
    return first if n and differ[first] else n
