"""A pool of KV pages: which are free, and how many holders each page has.

The pool knows nothing of tokens, rows or trees. A holder is a running row or the prefix cache; a page returns to the
free list when its last holder lets go. Page 0 is the sink and is never handed out.
"""

from __future__ import annotations

import numpy as np

from motley_engine.executor.step import IntArray


class OutOfPagesError(RuntimeError):
    """More pages were asked for than are free; the caller should have evicted or retracted first."""


class OwnershipError(AssertionError):
    """A page was shared, released or cached against the rules: a bug in the bookkeeping, never a client's fault."""


class PagePool:
    """Free list and holder counts of ``pages`` pages, sink included; 0 pages = the model has no such layers."""

    def __init__(self, pages: int) -> None:
        self.total = max(pages - 1, 0)
        self._holders = np.zeros(pages, np.int32)
        self._cached = np.zeros(pages, np.bool_)
        # a stack whose top is its end: low pages first, then the page released last
        self._stack = np.arange(self.total, 0, -1, dtype=np.int32)
        self.free = self.total

    @property
    def idle(self) -> int:
        """Pages that only the prefix cache holds."""
        return int(np.count_nonzero(self._cached & (self._holders == 1)))

    @property
    def cached(self) -> int:
        """Pages that the prefix cache holds, alone or with rows."""
        return int(np.count_nonzero(self._cached))

    @property
    def free_pages(self) -> IntArray:
        return self._stack[: self.free].copy()

    def holders(self, pages: IntArray) -> IntArray:
        """How many hold each of the pages."""
        return self._holders[pages]

    def in_cache(self, pages: IntArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Whether the prefix cache holds each of the pages."""
        return self._cached[pages]

    def allocate(self, count: int) -> IntArray:
        """Take ``count`` free pages, each with one holder. Raises OutOfPagesError."""
        if count > self.free:
            raise OutOfPagesError(f"{count} pages wanted, {self.free} of {self.total} free")
        self.free -= count
        pages = self._stack[self.free : self.free + count][::-1].copy()
        self._holders[pages] = 1
        return pages

    def share(self, pages: IntArray) -> None:
        """Count one more holder for pages that somebody holds already."""
        if (self._holders[pages] < 1).any():
            raise OwnershipError("a free page was shared")
        np.add.at(self._holders, pages, 1)

    def release(self, pages: IntArray) -> None:
        """Let go of pages; one may be listed once per holder that lets go. Raises OwnershipError on a double free."""
        np.subtract.at(self._holders, pages, 1)
        left = self._holders[pages]
        if (left < 0).any():
            raise OwnershipError("a page was released more often than it was taken")
        freed = np.unique(pages[left == 0])
        if self._cached[freed].any():
            raise OwnershipError("a cached page was released by somebody else")
        self._stack[self.free : self.free + len(freed)] = freed[::-1]
        self.free += len(freed)

    def adopt(self, pages: IntArray) -> None:
        """The prefix cache becomes a holder of pages that a row holds."""
        if self._cached[pages].any():
            raise OwnershipError("a page was cached twice")
        self.share(pages)
        self._cached[pages] = True

    def abandon(self, pages: IntArray) -> int:
        """The prefix cache lets go; returns how many pages became free."""
        if not self._cached[pages].all():
            raise OwnershipError("a page was dropped from the cache that was not in it")
        self._cached[pages] = False
        before = self.free
        self.release(pages)
        return self.free - before
