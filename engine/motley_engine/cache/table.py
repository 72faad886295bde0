"""The host's copy of one page table of the executors: which pages each running row holds, column by column.

Column c of a row covers positions [c * page_size, (c + 1) * page_size). A row holds the columns [first, end):

    0 ........... first .............. end
    |  dropped, 0   |  held, one count  |  nothing

``first`` is 0 in the full pool and moves in the window pool. Every change is also recorded as an entry for the next
step plan, so the executors' tables follow.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from motley_engine.cache.pages import PagePool
from motley_engine.executor.step import IntArray, PageUpdate

Columns = npt.NDArray[np.int64]


class PageTable:
    """Page table [rows, columns] over one pool. Without pages (no such layers) it stays empty and costs nothing."""

    def __init__(self, pool: PagePool, rows: int, columns: int) -> None:
        self.pool = pool
        self.pages = np.zeros((rows, columns if pool.total else 0), np.int32)
        self.first = np.zeros(rows, np.int64)
        self.end = np.zeros(rows, np.int64)
        self._changes: list[tuple[Columns, Columns, IntArray]] = []

    def held(self, row: int) -> IntArray:
        """Pages that the row holds, in column order."""
        return self.pages[row, self.first[row] : self.end[row]]

    def missing(self, rows: IntArray, columns: Columns) -> Columns:
        """How many pages each row lacks to cover ``columns`` columns."""
        if not self.pool.total:
            return np.zeros(len(rows), np.int64)
        lacking: Columns = np.maximum(columns - self.end[rows], 0)
        return lacking

    def attach(self, row: int, pages: IntArray) -> None:
        """Give an empty row the cached pages of its prefix; leading zeros are columns its window has left behind."""
        if not self.pool.total or not len(pages):
            return
        kept = np.flatnonzero(pages)
        self.first[row] = kept[0] if len(kept) else len(pages)
        self.end[row] = len(pages)
        self.pages[row, : len(pages)] = pages
        self.pool.share(pages[kept])
        self._record(np.full(len(pages), row), np.arange(len(pages)), pages)

    def extend(self, rows: IntArray, columns: Columns) -> None:
        """Allocate what each row lacks to cover ``columns[i]`` columns."""
        counts = self.missing(rows, columns)
        total = int(counts.sum())
        if not total:
            return
        where = np.repeat(rows.astype(np.int64), counts)
        fresh = _ranges(self.end[rows], counts)
        pages = self.pool.allocate(total)
        self.pages[where, fresh] = pages
        self.end[rows] += counts
        self._record(where, fresh, pages)

    def drop(self, rows: IntArray, columns: Columns) -> None:
        """Let go of every column below ``columns[i]`` of row i."""
        if not self.pool.total:
            return
        counts = np.maximum(np.minimum(columns, self.end[rows]) - self.first[rows], 0)
        if not counts.any():
            return
        where = np.repeat(rows.astype(np.int64), counts)
        stale = _ranges(self.first[rows], counts)
        self.pool.release(self.pages[where, stale])
        self.pages[where, stale] = 0
        self.first[rows] += counts
        self._record(where, stale, np.zeros(len(where), np.int32))

    def detach(self, row: int) -> None:
        """Let go of all the row holds. Entries not yet sent are withdrawn, so a plan never names a place twice."""
        if not self.pool.total:
            return
        self.pool.release(self.held(row))
        self.pages[row, : self.end[row]] = 0
        self.first[row] = self.end[row] = 0
        self._changes = [_without(row, *change) for change in self._changes]

    def take_changes(self) -> PageUpdate:
        """Entries recorded since the last call, for the next step plan."""
        if not self._changes:
            return PageUpdate()
        rows, columns, pages = (np.concatenate(parts).astype(np.int32) for parts in zip(*self._changes, strict=True))
        self._changes.clear()
        return PageUpdate(rows, columns, pages)

    def _record(self, rows: Columns, columns: Columns, pages: IntArray) -> None:
        self._changes.append((rows, columns, pages))


def _without(row: int, rows: Columns, columns: Columns, pages: IntArray) -> tuple[Columns, Columns, IntArray]:
    others = rows != row
    return rows[others], columns[others], pages[others]


def _ranges(starts: Columns, counts: Columns) -> Columns:
    """[s0, s0+1, .. s0+c0-1, s1, ...] for all starts and counts."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1]) - np.repeat(ends - counts - starts, counts)
