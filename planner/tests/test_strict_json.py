"""Strict decoding: every fault names its field."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley_planner.strict_json import JsonError, canonical, decode, parse, to_plain


@dataclass(frozen=True)
class Inner:
    name: str
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Outer:
    count: int
    ratio: float
    flag: bool
    pair: tuple[int, int]
    items: tuple[Inner, ...]
    sizes: Mapping[str, int]
    maybe: int | None = None

    def __post_init__(self):
        if self.count < 0:
            raise ValueError("count must not be negative")


GOOD = {
    "count": 1,
    "ratio": 0.5,
    "flag": True,
    "pair": [1, 2],
    "items": [{"name": "x"}],
    "sizes": {"k": 3},
}


def test_good_values_round_trip():
    value = decode(Outer, GOOD)
    assert value.items == (Inner("x"),)
    assert decode(Outer, parse(canonical(value))) == value
    assert decode(float, 3) == 3.0


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"count": "1"}, 'count: "1" is not a 64-bit integer'),
        ({"count": True}, "count: true is not a 64-bit integer"),
        ({"count": 1.0}, "count: 1.0 is not"),
        ({"count": 2**64}, "count: 18446744073709551616 is not a 64-bit integer"),
        ({"count": -1}, "document: count must not be negative"),
        ({"ratio": "x"}, "ratio: .* is not a finite number"),
        ({"ratio": 10**400}, "ratio: 1000.*is not a finite number"),
        ({"flag": 1}, "flag: 1 is not true or false"),
        ({"pair": [1]}, r"pair: \[1\] is not a list of 2"),
        ({"pair": [1, None]}, r"pair\[1\]: null is not"),
        ({"items": {}}, r"items: \{\} is not a list"),
        ({"items": [{"name": 3}]}, r"items\[0\].name: 3 is not a string"),
        ({"items": [{"name": "x", "kind": "c"}]}, r"items\[0\].kind: \"c\" is not one of"),
        ({"items": [{"name": "x", "kind": ["a"]}]}, r"items\[0\].kind"),
        ({"items": [{}]}, r"items\[0\].name: missing"),
        ({"sizes": {"k": "v"}}, "sizes.k: "),
        ({"maybe": "v"}, "maybe: "),
        ({"more": 1}, "more: unknown field; known: count, "),
    ],
)
def test_faults_name_the_field(change, fault):
    with pytest.raises(JsonError, match=fault):
        decode(Outer, {**GOOD, **change})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "not valid JSON"),
        ('{"a": NaN}', "NaN is no number"),
        ('{"a": -Infinity}', "-Infinity is no number"),
        ('{"a": 1, "a": 2}', "a: given twice"),
        ("[" * 100_000, "not valid JSON"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
    ],
)
def test_bad_text_is_refused(text, fault):
    with pytest.raises(JsonError, match=fault):
        parse(text)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(PLAIN)
def test_any_json_is_decoded_or_refused(value):
    try:
        decode(Outer, value)
    except JsonError as error:
        assert str(error)  # noqa: PT017


@given(st.dictionaries(st.text(), st.integers()))
def test_canonical_text_does_not_depend_on_order(mapping):
    backwards = dict(reversed(list(mapping.items())))
    assert canonical(mapping) == canonical(backwards)
    assert to_plain(mapping) == mapping
