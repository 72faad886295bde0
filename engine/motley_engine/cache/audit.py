"""Checks that every page is accounted for: free + cached + held by rows = total, in both pools, with no overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from motley_engine.cache.ledger import Ledger
from motley_engine.cache.pages import OwnershipError, PagePool
from motley_engine.cache.prefix import Node
from motley_engine.cache.table import PageTable
from motley_engine.executor.step import IntArray


def audit(ledger: Ledger, rows: Iterable[int]) -> None:
    """Verify the whole bookkeeping against first principles, given the running ``rows``. Raises OwnershipError."""
    nodes, rows = list(ledger.cache.nodes()), set(rows)
    _audit_pool("full", ledger.full, rows, [node.full for node in nodes])
    _audit_pool("window", ledger.window, rows, [node.window for node in nodes])
    _audit_locks(ledger, nodes)
    for node in nodes:
        _audit_shape(ledger, node)


def leaked_pages(ledger: Ledger) -> int:
    """Pages that are neither free nor cached; anything but 0 is a leak when no row runs."""
    pools = (ledger.full.pool, ledger.window.pool)
    return sum(pool.total - pool.free - pool.cached for pool in pools)


def _audit_pool(name: str, table: PageTable, rows: set[int], cached: list[IntArray]) -> None:
    pool = table.pool
    in_tree = np.concatenate([np.empty(0, np.int32), *cached])
    in_tree = in_tree[in_tree != 0]
    held = [table.held(row) for row in range(len(table.end))]
    for row, pages in enumerate(held):
        _demand(row in rows or not len(pages), f"{name}: row {row} is free and holds pages")
        distinct = bool((pages > 0).all()) and len(np.unique(pages)) == len(pages)
        _demand(distinct, f"{name}: row {row} holds a page twice")
        outside = np.delete(table.pages[row], np.s_[table.first[row] : table.end[row]])
        _demand(not outside.any(), f"{name}: row {row} names pages that it does not hold")
    _audit_counts(name, pool, in_tree, np.concatenate([in_tree, *held]))


def _audit_counts(name: str, pool: PagePool, in_tree: IntArray, holds: IntArray) -> None:
    everything = np.arange(pool.total + 1 if pool.total else 0, dtype=np.int32)
    counts = np.bincount(holds, minlength=len(everything))
    _demand(bool((counts == pool.holders(everything)).all()), f"{name}: holder counts differ from the holders found")
    _demand(len(np.unique(in_tree)) == len(in_tree), f"{name}: a page is in the tree twice")
    marked = bool(pool.in_cache(in_tree).all()) and pool.cached == len(in_tree)
    _demand(marked, f"{name}: cache marks differ from the tree")
    free = pool.free_pages
    _demand(len(np.unique(free)) == len(free) and not np.isin(0, free), f"{name}: the free list is corrupt")
    _demand(set(free.tolist()) == set(everything[counts == 0].tolist()) - {0}, f"{name}: free and held overlap or leak")


def _audit_locks(ledger: Ledger, nodes: list[Node]) -> None:
    expected: Counter[int] = Counter()
    for handle in ledger.handles.values():
        node: Node | None = handle
        while node is not None:
            expected[id(node)] += 1
            node = node.parent
    for node in nodes:
        _demand(node.locks == expected[id(node)], "a node's locks differ from the rows below it")
    unlocked = [node for node in nodes if not node.locks]
    if ledger.full.pool.total:
        _demand(ledger.cache.evictable == sum(len(n.full) for n in unlocked), "the count of evictable pages is off")
        for node in unlocked:
            _demand(bool((ledger.full.pool.holders(node.full) == 1).all()), "a row holds pages of an unlocked node")


def _audit_shape(ledger: Ledger, node: Node) -> None:
    page = ledger.page_size
    _demand(len(node.full) == len(node.window) > 0, "a node is empty or its page lists differ")
    _demand(len(node.tokens) == len(node.full) * page, "a node's tokens do not fill its pages")
    _demand(bool((node.full > 0).all()) or not ledger.full.pool.total, "a node lacks full pages")
    for key, child in node.children.items():
        _demand(child.parent is node and key == child.tokens[:page].tobytes(), "a child hangs under the wrong key")


def _demand(fact: bool, message: str) -> None:
    if not fact:
        raise OwnershipError(message)
