"""Stop strings against a brute-force reading, one character at a time."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from motley_engine.server.stop import StopMatcher

TEXT = st.text("ab\u00e9", max_size=30)
STOPS = st.lists(st.text("ab\u00e9", min_size=1, max_size=5), min_size=1, max_size=4)


def oracle(text: str, stops: list[str], keep: bool) -> tuple[str, str | None]:
    """The first end of any stop string decides; of several that end there, the longest."""
    for end in range(len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return (text[:end] if keep else text[: end - len(stop)]), stop
    return text, None


def pieces(text: str, cuts: list[int]) -> list[str]:
    bounds = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in itertools.pairwise(bounds)]


@given(TEXT, STOPS, st.lists(st.integers(0, 100), max_size=8), st.booleans())
def test_any_cut_of_the_text_gives_the_oracles_answer_and_leaks_no_prefix(text, stops, cuts, keep):
    expected, matched = oracle(text, stops, keep)
    matcher = StopMatcher(stops, keep)
    released = ""
    seen = ""
    for piece in pieces(text, cuts):
        released += matcher.push(piece)
        seen += piece
        assert expected.startswith(released)
        if matcher.matched is None:
            assert len(seen) - len(released) <= max(map(len, stops)) - 1
    released += matcher.flush()
    assert (released, matcher.matched) == (expected, matched)


@given(TEXT, STOPS)
def test_only_what_may_begin_a_stop_string_is_held_back(text, stops):
    matcher = StopMatcher(stops)
    released = matcher.push(text)
    held = text[len(released) :] if matcher.matched is None else ""
    assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)


def test_a_match_that_ends_while_inactive_does_not_count_later():
    matcher = StopMatcher(["ab", "xxxxxx"])
    assert matcher.push("ab", active=False) + matcher.push("c", active=True) == "abc"
    assert matcher.matched is None
    assert matcher.push("ab") == ""
    assert matcher.matched == "ab"


def test_an_inactive_beginning_and_an_active_end_match():
    matcher = StopMatcher(["END"])
    assert matcher.push("xEN", active=False) == "x"
    assert matcher.push("D", active=True) == ""
    assert matcher.matched == "END"
