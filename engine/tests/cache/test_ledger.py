"""Ledger against a naive model: random rows come, grow, publish and go; contents and owners are checked every time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from motley_engine.cache.audit import audit, leaked_pages
from motley_engine.cache.ledger import Ledger
from motley_engine.cache.pages import OutOfPagesError
from motley_engine.executor.step import Geometry

ROWS = 4


def make_geometry(page=2, full=14, window_pages=0, window=0, context=64):
    return Geometry(page, full, window_pages, window, ROWS, context, 100)


GEOMETRIES = st.sampled_from(
    [
        make_geometry(),
        make_geometry(page=1, full=20),
        make_geometry(page=4, full=100),
        make_geometry(full=30, window_pages=17, window=4),
        make_geometry(page=1, full=100, window_pages=24, window=3),
        make_geometry(page=4, full=60, window_pages=17, window=5),
        make_geometry(full=0, window_pages=17, window=4),
    ]
)


class Memory:
    """What the executors' pools would hold: per page and offset, the tokens up to there."""

    def __init__(self, page_size):
        self.page_size = page_size
        self.slots = {}

    def write(self, pages, tokens, start, stop):
        for position in range(start, stop):
            page = int(pages[position // self.page_size])
            assert page > 0, "a token is written without a page"
            self.slots[page, position % self.page_size] = tuple(tokens[: position + 1])

    def verify(self, pages, tokens, start, stop):
        for position in range(start, stop):
            page = int(pages[position // self.page_size])
            assert self.slots.get((page, position % self.page_size)) == tuple(tokens[: position + 1])


class LedgerMachine(RuleBasedStateMachine):
    """Rows hold token lists; the memory of both pools is checked through the page tables."""

    @initialize(geometry=GEOMETRIES)
    def setup(self, geometry):
        self.geometry = geometry
        self.ledger = Ledger(geometry)
        self.full, self.window = Memory(geometry.page_size), Memory(geometry.page_size)
        self.rows = {}
        self.published = set()
        self.executor = np.zeros((2, ROWS, -(-geometry.max_context // geometry.page_size)), np.int64)

    @precondition(lambda self: len(self.rows) < ROWS)
    @rule(tokens=st.lists(st.integers(0, 2), min_size=1, max_size=24))
    def start(self, tokens):
        row = next(r for r in range(ROWS) if r not in self.rows)
        match = self.ledger.match(np.array(tokens, np.int32), len(tokens) - 1)
        assert match.length == self.best_match(tokens[:-1])
        self.ledger.attach(row, match)
        self.rows[row] = tokens[: match.length]

    def best_match(self, tokens):
        """Brute force over all paths of the tree: the longest prefix whose last window is whole."""
        best, page = 0, self.geometry.page_size
        span = -(-self.geometry.window // page)
        for node in self.ledger.cache.nodes():
            path = []
            while node.parent is not None:
                path.insert(0, node)
                node = node.parent
            ids = [token for part in path for token in part.tokens.tolist()]
            window = [entry for part in path for entry in part.window.tolist()]
            for length in range(page, min(len(ids), len(tokens)) + 1, page):
                last = window[: length // page][-span:] if span else []
                if ids[:length] == tokens[:length] and all(last):
                    best = max(best, length)
        return best

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), more=st.lists(st.integers(0, 2), min_size=1, max_size=9))
    def grow(self, data, more):
        """Slide, take pages and write, as one step does; too little room leaves all as it was."""
        row = data.draw(st.sampled_from(sorted(self.rows)))
        tokens = self.rows[row] + more
        if len(tokens) > self.geometry.max_context:
            return
        start, where = len(self.rows[row]), np.array([row], np.int32)
        self.ledger.slide(where, np.array([start]))
        size = np.array([len(tokens)])
        if not self.fits(where, size):
            return
        self.ledger.extend(where, size, size)
        self.rows[row] = tokens
        if self.geometry.full_pages:
            self.full.write(self.ledger.full.pages[row], tokens, start, len(tokens))
        if self.geometry.window:
            self.window.write(self.ledger.window.pages[row], tokens, start, len(tokens))

    def fits(self, where, size):
        pool, columns = self.ledger.window.pool, -(-size // self.geometry.page_size)
        enough = self.ledger.missing(where, size).sum() <= self.ledger.available
        return enough and self.ledger.window.missing(where, columns).sum() <= pool.free + pool.idle

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def publish(self, data):
        row = data.draw(st.sampled_from(sorted(self.rows)))
        self.ledger.publish(row, np.array(self.rows[row], np.int32))

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def finish(self, data):
        row = data.draw(st.sampled_from(sorted(self.rows)))
        tokens = self.rows.pop(row)
        self.ledger.release(row, np.array(tokens[: data.draw(st.integers(0, len(tokens)))], np.int32))

    @precondition(lambda self: not self.rows)
    @rule()
    def clear(self):
        self.ledger.clear()
        assert self.ledger.full.pool.free == self.ledger.full.pool.total
        assert self.ledger.window.pool.free == self.ledger.window.pool.total

    @rule(count=st.integers(1, 5))
    def press(self, count):
        self.ledger.cache.evict_window(count)
        self.ledger.cache.evict_full(count)

    @invariant()
    def every_page_is_accounted_for(self):
        audit(self.ledger, self.rows)
        if not self.rows:
            assert leaked_pages(self.ledger) == 0

    @invariant()
    def rows_read_what_they_wrote_or_matched(self):
        for row, tokens in self.rows.items():
            if self.geometry.full_pages:
                self.full.verify(self.ledger.full.pages[row], tokens, 0, len(tokens))
            if self.geometry.window:
                oldest = max(len(tokens) - self.geometry.window, 0)
                self.window.verify(self.ledger.window.pages[row], tokens, oldest, len(tokens))

    @invariant()
    def executors_follow_by_the_changes_alone(self):
        for table, update, copy in zip(
            (self.ledger.full, self.ledger.window), self.ledger.take_changes(), self.executor, strict=True
        ):
            copy[update.rows, update.columns] = update.pages
            for row in self.rows:
                assert (copy[row, : table.end[row]] == table.pages[row, : table.end[row]]).all()


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


def row(*lengths):
    return np.array(lengths)


def test_a_row_that_ends_leaves_its_prefix_to_the_next():
    ledger = Ledger(make_geometry())
    tokens = np.arange(7, dtype=np.int32)
    ledger.extend(row(0), row(7), row(7))
    ledger.release(0, tokens)
    match = ledger.match(tokens, 6)
    assert match.length == 6
    assert ledger.available == ledger.full.pool.total


def test_extend_evicts_only_what_it_must_and_reports_what_it_cannot():
    ledger = Ledger(make_geometry(full=5))
    ledger.extend(row(0), row(4), row(4))
    ledger.release(0, np.arange(4, dtype=np.int32))
    ledger.extend(row(1), row(4), row(4))
    assert ledger.cache.evictable == 2
    ledger.extend(row(1), row(5), row(5))
    assert ledger.cache.evictable == 0
    with pytest.raises(OutOfPagesError):
        ledger.extend(row(1), row(9), row(9))


def test_sliding_keeps_a_window_and_gives_the_rest_back():
    ledger = Ledger(make_geometry(full=40, window_pages=20, window=4))
    ledger.extend(row(2), row(11), row(11))
    ledger.slide(row(2), row(11))
    # positions 7 to 10 can still be seen by a query at 11: columns 3 to 5
    assert (ledger.window.pages[2, :6] != 0).tolist() == [False, False, False, True, True, True]
    assert ledger.window.pool.free == 16
    assert len(ledger.window.held(2)) <= ledger.window_cap


def test_without_a_prefix_cache_nothing_is_kept():
    ledger = Ledger(make_geometry(), prefix_cache=False)
    tokens = np.arange(8, dtype=np.int32)
    ledger.extend(row(0), row(8), row(8))
    ledger.publish(0, tokens)
    ledger.release(0, tokens)
    assert ledger.full.pool.free == ledger.full.pool.total
    assert ledger.match(tokens, 8).length == 0
    audit(ledger, [])


def test_changes_of_a_row_that_ended_before_they_were_sent_are_withdrawn():
    ledger = Ledger(make_geometry())
    ledger.extend(row(0, 1), row(4, 4), row(4, 4))
    ledger.release(0, np.arange(0, dtype=np.int32))
    full, _ = ledger.take_changes()
    assert set(full.rows.tolist()) == {1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"page": 3}, "page_size: 3 is not a power of two"),
        ({"full": 1}, "full_pages"),
        ({"window": 8}, "window_pages: 0 does not go with a window of 8"),
        ({"window": 8, "window_pages": 5}, "window_pages: 5 .* window of 8 tokens"),
    ],
)
def test_pools_that_could_serve_nothing_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Ledger(make_geometry(**changes))
