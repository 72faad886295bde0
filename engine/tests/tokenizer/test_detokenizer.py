"""Incremental text equals whole text, for any ids, any grouping, and all three kinds of decoder."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer.texts import varied

from motley_engine.tokenizer import Detokenizer, Tokenizer
from motley_engine.tokenizer import detokenize as module

KINDS = ("smollm2", "gemma3", "sentencepiece")


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return request.getfixturevalue(request.param)


def in_groups(detokenizer: Detokenizer, ids: list[int], group: int) -> list[str]:
    deltas = [detokenizer.add(ids[start : start + group]) for start in range(0, len(ids), group)]
    return [*deltas, detokenizer.finish()]


@pytest.mark.parametrize("kind", KINDS)
def test_any_ids_in_any_groups(kind: str, request: pytest.FixtureRequest) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    # half the ids are special or single bytes: those are where decoders differ
    odd = sorted(tokenizer.special_ids | tokenizer.byte_ids)[:400] or [0]
    pieces = st.one_of(st.integers(0, tokenizer.vocab_size + 1), st.sampled_from(odd))

    @given(st.lists(pieces, max_size=60), st.integers(1, 5), st.booleans())
    def check(ids: list[int], group: int, skip: bool) -> None:
        assert "".join(in_groups(Detokenizer(tokenizer, skip), ids, group)) == tokenizer.decode(ids, skip)

    check()


def test_texts_come_back_character_by_character(tokenizer: Tokenizer) -> None:
    for text in varied(200):
        ids = tokenizer.encode(text, add_special=False)
        deltas = in_groups(Detokenizer(tokenizer, skip_special=False), ids, 1)
        assert "".join(deltas) == tokenizer.decode(ids, skip_special=False)
        # nothing but a character of the text itself may be a replacement
        assert "\ufffd" in text or not any("\ufffd" in delta for delta in deltas)


def test_incomplete_characters_are_held_back(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a𝔘b", add_special=False)
    detokenizer = Detokenizer(tokenizer)
    deltas = [detokenizer.add([index]) for index in ids]
    assert "".join(deltas).lstrip() == "a𝔘b"
    assert not any("\ufffd" in delta for delta in deltas)


def test_an_unfinished_character_becomes_a_replacement(smollm2: Tokenizer) -> None:
    ids = smollm2.encode("𝔘", add_special=False)
    detokenizer = Detokenizer(smollm2)
    assert detokenizer.add(ids[:-1]) == ""
    assert detokenizer.finish() == "\ufffd"


def test_context_keeps_the_space_that_a_text_start_loses(sentencepiece: Tokenizer) -> None:
    prompt = sentencepiece.encode("hello")
    answer = sentencepiece.encode("hello", add_special=False)
    assert "".join(in_groups(Detokenizer(sentencepiece), answer, 1)) == "hello"
    assert "".join(in_groups(Detokenizer(sentencepiece, context=prompt), answer, 1)) == " hello"


def test_context_inside_a_character_is_left_out(smollm2: Tokenizer) -> None:
    head = smollm2.encode("𝔘", add_special=False)[:-1]
    word = smollm2.encode("word", add_special=False)
    assert "".join(in_groups(Detokenizer(smollm2, context=head), word, 1)) == "word"


def test_work_per_token_does_not_grow(smollm2: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    original: Callable[..., str] = Tokenizer.decode

    def counting(self: Tokenizer, ids: list[int], skip_special: bool = True) -> str:
        decoded.append(len(ids))
        return original(self, ids, skip_special)

    monkeypatch.setattr(Tokenizer, "decode", counting)
    detokenizer = Detokenizer(smollm2)
    for index in smollm2.encode("word " * 500, add_special=False):
        detokenizer.add([index])
    assert max(decoded) <= module.WINDOW
