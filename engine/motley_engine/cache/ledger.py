"""Who holds which KV page: the operations by which running rows and the prefix cache get, share and give up pages.

Lifetime of the pages of one row, full pool above, window pool below (n = tokens planned so far):

    0 ............ matched ............ published ............ n
    |  shared with the tree, locked path  |   the row's alone   |     full
    |   dropped    |  n - window .. n: the row holds a count     |     window

All changes are made when a step is planned, before it runs. That is safe because executors run plans strictly in
order: a page freed while an earlier step still reads or writes it can only be written again by a later plan. For the
same reason a chunk's pages enter the tree as soon as the chunk is planned: whoever matches them, even in the same step,
reads after the write (a step writes the K/V of all its tokens before it attends, layer by layer).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from motley_engine.cache.pages import PagePool
from motley_engine.cache.prefix import Match, Node, NoPrefixCache, PrefixCache
from motley_engine.cache.radix import RadixTree
from motley_engine.cache.table import PageTable
from motley_engine.executor.step import Geometry, IntArray, PageUpdate

Lengths = npt.NDArray[np.int64]


def check_geometry(geometry: Geometry) -> None:
    """Raises ValueError for pools in which no sequence could ever be computed."""
    page, window = geometry.page_size, geometry.window
    if not 1 <= page <= 256 or page & (page - 1):
        raise ValueError(f"page_size: {page} is not a power of two from 1 to 256")
    if geometry.full_pages < 2 and not geometry.window_pages:
        raise ValueError("full_pages: a model without sliding-window layers needs at least one page beside the sink")
    if bool(window) != bool(geometry.window_pages):
        raise ValueError(f"window_pages: {geometry.window_pages} does not go with a window of {window} tokens")
    least = min(-(-window // page) + 1, -(-geometry.max_context // page))
    if window and geometry.window_pages - 1 < least:
        raise ValueError(
            f"window_pages: {geometry.window_pages} cannot hold one window of {window} tokens ({least} pages)"
        )


class Ledger:
    """Pages of both pools, the rows' page tables and the prefix cache. Lengths are in tokens, needs in pages."""

    def __init__(self, geometry: Geometry, prefix_cache: bool = True) -> None:
        check_geometry(geometry)
        self.page_size = geometry.page_size
        self.window_tokens = geometry.window
        columns = self.pages_for(geometry.max_context)
        full, window = PagePool(geometry.full_pages), PagePool(geometry.window_pages)
        self.full = PageTable(full, geometry.max_running, columns)
        self.window = PageTable(window, geometry.max_running, columns)
        self.cache: PrefixCache = (
            RadixTree(full, window, geometry.page_size, geometry.window) if prefix_cache else NoPrefixCache()
        )
        self._handles: dict[int, Node] = {}

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    @property
    def available(self) -> int:
        """Full pages that are free or can be evicted."""
        return self.full.pool.free + self.cache.evictable

    @property
    def window_cap(self) -> int:
        """Most window pages a row needs to add one token, wherever it stands; 0 without window layers."""
        return self.pages_for(self.window_tokens) + 1 if self.window.pool.total else 0

    @property
    def handles(self) -> dict[int, Node]:
        """The node that each row has locked."""
        return self._handles

    def missing(self, rows: IntArray, lengths: Lengths) -> Lengths:
        """Full pages that each row lacks to hold ``lengths`` tokens."""
        return self.full.missing(rows, -(-lengths // self.page_size))

    def match(self, tokens: IntArray, limit: int) -> Match:
        """Longest cached prefix of at most ``limit`` tokens. Attach or forget it before anything else is changed."""
        return self.cache.match(tokens, limit)

    def attach(self, row: int, match: Match) -> None:
        """An empty row takes the matched prefix as its own start."""
        if match.node is None:
            return
        self.cache.lock(match.node)
        self._handles[row] = match.node
        self.full.attach(row, match.full)
        self.window.attach(row, match.window)

    def slide(self, rows: IntArray, lengths: Lengths) -> None:
        """Drop window pages that no query at position ``lengths[i]`` or later can see."""
        if self.window.pool.total:
            self.window.drop(rows, np.maximum(lengths - self.window_tokens, 0) // self.page_size)

    def extend(self, rows: IntArray, full_lengths: Lengths, window_lengths: Lengths) -> None:
        """Give rows the pages to hold so many tokens, evicting as needed; OutOfPagesError beyond ``available``."""
        full, window = -(-full_lengths // self.page_size), -(-window_lengths // self.page_size)
        lack = int(self.full.missing(rows, full).sum()) - self.full.pool.free
        if lack > 0:
            self.cache.evict_full(lack)
        self.full.extend(rows, full)
        lack = int(self.window.missing(rows, window).sum()) - self.window.pool.free
        if lack > 0:
            self.cache.evict_window(lack)
        self.window.extend(rows, window)

    def publish(self, row: int, tokens: IntArray) -> None:
        """Offer the whole pages of ``tokens``, all planned by the row, to the prefix cache and lock them there."""
        pages = len(tokens) // self.page_size
        node = self.cache.insert(
            tokens[: pages * self.page_size], self._held(self.full, row, pages), self._held(self.window, row, pages)
        )
        if node is None:
            return
        self.cache.lock(node)
        if row in self._handles:
            self.cache.unlock(self._handles[row])
        self._handles[row] = node

    def release(self, row: int, tokens: IntArray) -> None:
        """The row ends: the whole pages of ``tokens`` go to the prefix cache, everything else is let go."""
        self.publish(row, tokens)
        self.full.detach(row)
        self.window.detach(row)
        if row in self._handles:
            self.cache.unlock(self._handles.pop(row))

    def take_changes(self) -> tuple[PageUpdate, PageUpdate]:
        """Page table entries for the next step plan, full and window."""
        return self.full.take_changes(), self.window.take_changes()

    def clear(self) -> None:
        """Forget all cached prefixes; no row may be running."""
        self.cache.clear()

    @staticmethod
    def _held(table: PageTable, row: int, pages: int) -> IntArray:
        if not table.pool.total:
            return np.zeros(pages, np.int32)
        return table.pages[row, :pages]
