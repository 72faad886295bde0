"""The radix tree alone: what it finds, what it splits, what it evicts and in which order."""

from __future__ import annotations

import numpy as np
import pytest

from motley_engine.cache.pages import PagePool
from motley_engine.cache.radix import RadixTree

PAGE = 2


class Bench:
    """A tree over two pools; ``add`` plays a row that computes tokens, publishes them and ends."""

    def __init__(self, full=40, window=0, window_tokens=0):
        self.full, self.window = PagePool(full), PagePool(window)
        self.tree = RadixTree(self.full, self.window, PAGE, window_tokens)

    def add(self, text, window=True):
        tokens = encode(text)
        pages = len(tokens) // PAGE
        full = self.full.allocate(pages) if self.full.total else np.zeros(pages, np.int32)
        has_window = self.window.total and window
        sliding = self.window.allocate(pages) if has_window else np.zeros(pages, np.int32)
        node = self.tree.insert(tokens[: pages * PAGE], full, sliding)
        self.full.release(full[full != 0])
        self.window.release(sliding[sliding != 0])
        return node

    def found(self, text, limit=1000):
        match = self.tree.match(encode(text), limit)
        assert match.length == self.tree.probe(encode(text), limit)
        return match.length

    def texts(self):
        return sorted(decode(node) for node in self.tree.nodes())


def encode(text):
    return np.array([ord(letter) for letter in text], np.int32)


def decode(node):
    return "".join(chr(token) for token in node.tokens)


@pytest.fixture
def bench():
    return Bench()


def test_nothing_is_found_in_an_empty_tree(bench):
    assert bench.found("abcd") == 0


def test_the_longest_prefix_is_found_in_whole_pages(bench):
    bench.add("abcdef")
    assert bench.found("abcdef") == 6
    assert bench.found("abcdeX") == 4
    assert bench.found("abcXef") == 2
    assert bench.found("aXcdef") == 0
    assert bench.found("abcdefgh") == 6
    assert bench.found("abcde") == 4


def test_the_limit_cuts_a_match_down_to_whole_pages(bench):
    bench.add("abcdef")
    assert bench.found("abcdef", limit=5) == 4
    assert bench.found("abcdef", limit=1) == 0


def test_a_tail_shorter_than_a_page_is_not_kept(bench):
    bench.add("abcde")
    assert bench.texts() == ["abcd"]


def test_matching_probing_only_does_not_split(bench):
    bench.add("abcdef")
    bench.tree.probe(encode("abcd"), 100)
    assert bench.texts() == ["abcdef"]
    bench.tree.match(encode("abcd"), 100)
    assert bench.texts() == ["abcd", "ef"]


def test_branches_share_their_stem_and_pages(bench):
    bench.add("abcdef")
    before = bench.full.free
    bench.add("abcdxy")
    assert bench.texts() == ["abcd", "ef", "xy"]
    # only the page of "xy" is new; the duplicates of the stem are free again
    assert bench.full.free == before - 1


def test_inserting_a_known_prefix_changes_nothing(bench):
    bench.add("abcdef")
    free = bench.full.free
    node = bench.add("abcd")
    assert bench.full.free == free
    assert decode(node) == "abcd"
    assert bench.found("abcdef") == 6


def test_matched_pages_are_those_inserted_first(bench):
    tokens, pages = encode("abcdef"), bench.full.allocate(3)
    bench.tree.insert(tokens, pages, np.zeros(3, np.int32))
    bench.add("abcdxy")
    assert bench.tree.match(tokens, 100).full.tolist() == pages.tolist()


def test_the_least_recently_used_leaf_is_evicted_first(bench):
    for text in ("aabb", "ccdd", "eeff"):
        bench.add(text)
    bench.found("aabb")
    bench.tree.evict_full(1)
    assert bench.texts() == ["aabb", "eeff"]
    bench.tree.evict_full(3)
    assert bench.texts() == []
    assert bench.full.free == bench.full.total


def test_a_stem_outlives_its_leaves_and_goes_when_they_are_gone(bench):
    bench.add("abcdef")
    bench.add("abcdxy")
    bench.tree.evict_full(2)
    assert bench.texts() == ["abcd"]
    bench.tree.evict_full(1)
    assert bench.texts() == []


def test_locked_paths_are_not_evicted(bench):
    node = bench.add("abcdef")
    bench.add("abcdxy")
    bench.tree.lock(node)
    assert bench.tree.evictable == 1
    bench.tree.evict_full(100)
    assert bench.texts() == ["abcd", "ef"]
    bench.tree.unlock(node)
    assert bench.tree.evictable == 3
    bench.tree.evict_full(100)
    assert bench.texts() == []


def test_a_lock_survives_a_split_above_it(bench):
    node = bench.add("abcdef")
    bench.tree.lock(node)
    bench.add("abcdxy")
    assert decode(node) == "ef"
    bench.tree.evict_full(100)
    assert bench.texts() == ["abcd", "ef"]
    bench.tree.unlock(node)
    assert bench.tree.evictable == 3


def test_unlocking_what_is_not_locked_is_a_fault(bench):
    node = bench.add("abcd")
    with pytest.raises(AssertionError, match="more often than locked"):
        bench.tree.unlock(node)


def test_the_root_may_be_locked_by_a_row_without_a_match(bench):
    root = bench.tree.match(encode("abcd"), 100).node
    bench.tree.lock(root)
    bench.tree.unlock(root)


def test_clear_frees_everything_but_not_under_a_row(bench):
    node = bench.add("abcd")
    bench.tree.lock(node)
    with pytest.raises(AssertionError, match="while a row uses it"):
        bench.tree.clear()
    bench.tree.unlock(node)
    bench.tree.clear()
    assert bench.full.free == bench.full.total
    assert bench.found("abcd") == 0


def test_match_reports_what_locking_it_makes_unevictable(bench):
    node = bench.add("abcdef")
    bench.add("abcdxy")
    assert bench.tree.match(encode("abcdxy"), 100).unlocked == 3
    bench.tree.lock(node)
    assert bench.tree.match(encode("abcdxy"), 100).unlocked == 1


def test_the_version_tells_when_the_content_changed(bench):
    start = bench.tree.version
    bench.found("abcd")
    assert bench.tree.version == start
    bench.add("abcd")
    grown = bench.tree.version
    assert grown > start
    bench.tree.evict_full(1)
    assert bench.tree.version > grown


def test_window_holes_older_than_the_window_do_not_matter():
    bench = Bench(window=40, window_tokens=4)
    bench.add("aabbccddee")
    node = next(bench.tree.nodes())
    bench.window.abandon(node.window[:2])
    node.window[:2] = 0
    # resuming after 5 or 4 pages needs the two pages before; after 3 pages one of them is a hole
    assert bench.found("aabbccddee") == 10
    assert bench.found("aabbccddXX") == 8
    assert bench.found("aabbccXXXX") == 0


def test_a_short_prefix_needs_all_its_window_pages():
    bench = Bench(window=40, window_tokens=100)
    bench.add("aabbcc")
    assert bench.found("aabbcc") == 6
    node = next(bench.tree.nodes())
    bench.window.abandon(node.window[1:2])
    node.window[1] = 0
    assert bench.found("aabbcc") == 2


def test_matched_window_pages_reach_back_one_window():
    bench = Bench(window=40, window_tokens=3)
    bench.add("aabbccddee")
    window = bench.tree.match(encode("aabbccddee"), 100).window
    assert (window != 0).tolist() == [False, False, False, True, True]


def test_holes_are_filled_by_whoever_computes_them_again():
    bench = Bench(window=40, window_tokens=4)
    bench.add("aabbcc", window=False)
    assert bench.found("aabbcc") == 0
    free = bench.full.free
    bench.add("aabbccdd")
    assert bench.found("aabbccdd") == 8
    assert bench.full.free == free - 1


def test_window_eviction_takes_the_oldest_node_from_its_front():
    bench = Bench(window=40, window_tokens=4)
    bench.add("aabbccdd")
    bench.add("xxyy")
    bench.tree.evict_window(2)
    assert bench.found("aabbccdd") == 8
    assert bench.found("aabbcc") == 0
    bench.tree.evict_window(1)
    # the match above has just used the first node, so "xxyy" has become the oldest
    assert bench.found("xxyy") == 0


def test_a_leaf_without_window_pages_goes_with_its_full_pages():
    bench = Bench(window=40, window_tokens=4)
    bench.add("aabb")
    bench.tree.evict_window(2)
    assert bench.texts() == []
    assert bench.full.free == bench.full.total


def test_window_pages_that_rows_hold_are_passed_over():
    bench = Bench(window=40, window_tokens=4)
    bench.add("aabb")
    held = next(bench.tree.nodes()).window.copy()
    bench.window.share(held)
    bench.add("ccdd")
    bench.tree.evict_window(100)
    assert bench.texts() == ["aabb"]
    bench.window.release(held)
    bench.tree.evict_window(100)
    assert bench.window.free == bench.window.total


def test_a_tree_without_full_layers_lives_on_window_pages():
    bench = Bench(full=0, window=10, window_tokens=4)
    bench.add("aabbcc")
    assert bench.found("aabbcc") == 6
    assert bench.tree.evictable == 0
    bench.tree.evict_window(3)
    assert bench.texts() == []


def test_dead_nodes_do_not_pile_up_behind_an_idle_eviction():
    bench = Bench(full=40, window=40, window_tokens=4)
    for number in range(2000):
        bench.add(chr(number + 1000) * 4)
        bench.tree.evict_window(2)
    assert len(bench.tree._leaves) < 600
