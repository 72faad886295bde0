"""What a GGUF vocabulary may say, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import pytest
from tokenizer.conftest import sentencepiece_vocabulary

from motley_engine.tokenizer import TokenizerError, load_tokenizer
from motley_engine.tokenizer.gguf import CONTROL, USER_DEFINED, VocabularyError, build
from motley_engine.tokenizer.splits import SPLITS


def test_sentencepiece_prefixes_a_space_and_adds_bos() -> None:
    tokenizer = build(sentencepiece_vocabulary())
    ids = tokenizer.encode("hello")
    assert [tokenizer.backend.id_to_token(index) for index in ids] == ["<s>", "▁hello"]
    assert tokenizer.decode(ids) == "hello"


def test_sentencepiece_without_prefix_or_ends() -> None:
    tokenizer = build(sentencepiece_vocabulary(add_space=False, add_bos=False, add_eos=True))
    ids = tokenizer.encode("hello")
    assert [tokenizer.backend.id_to_token(index) for index in ids] == ["he", "llo", "</s>"]
    assert tokenizer.decode(tokenizer.encode(" hello")) == " hello"


def test_merges_follow_scores() -> None:
    """``▁hello`` could be ``▁he`` + ``llo`` or ``▁h`` + ...; the best-scored join goes first."""
    tokenizer = build(sentencepiece_vocabulary(tokens=[*sentencepiece_vocabulary().tokens[:-3], "▁hellX", "lo", "é"]))
    assert [tokenizer.backend.id_to_token(index) for index in tokenizer.encode("hello")] == ["<s>", "▁he", "llo"]


def test_characters_outside_the_vocabulary_fall_back_to_bytes() -> None:
    tokenizer = build(sentencepiece_vocabulary())
    ids = tokenizer.encode("日é", add_special=False)
    assert [tokenizer.backend.id_to_token(index) for index in ids] == ["▁", "<0xE6>", "<0x97>", "<0xA5>", "é"]
    assert tokenizer.decode(ids) == "日é"
    assert tokenizer.token_bytes(ids[1]) == b"\xe6"


def byte_level(pre: str, **changes: object):
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789Ġ'", "12", "Ġa", "<|end|>", "<think>"]
    kinds = [1] * (len(letters) - 2) + [CONTROL, USER_DEFINED]
    values = {"tokens": letters, "types": kinds, "merges": ["1 2", "Ġ a"], "scores": []}
    ends = {"bos": len(letters) - 2, "eos": len(letters) - 2, "unk": None, "add_bos": False}
    return sentencepiece_vocabulary(model="gpt2", pre=pre, **values, **ends, **changes)


@pytest.mark.parametrize("pre", sorted(SPLITS))
def test_every_split_round_trips(pre: str) -> None:
    tokenizer = build(byte_level(pre))
    text = "abc a 12 12<think>x<|end|>"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids, skip_special=False) == text
    assert tokenizer.decode(ids) == text.removesuffix("<|end|>")
    tokens = [tokenizer.backend.id_to_token(index) for index in ids]
    assert tokens.count("<think>") == tokens.count("<|end|>") == 1
    # single digits in Qwen's and Tekken's rule, runs of digits elsewhere
    assert ("12" in tokens) == (pre not in {"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "tekken"})


def test_unknown_kinds_are_refused_by_key_and_value() -> None:
    with pytest.raises(VocabularyError, match=r"tokenizer\.ggml\.model: 't5' is not known; known: gpt2, llama"):
        build(sentencepiece_vocabulary(model="t5"))
    with pytest.raises(VocabularyError, match=r"tokenizer\.ggml\.pre: 'martian' is not known"):
        build(byte_level("martian"))
    with pytest.raises(VocabularyError, match=r"tokenizer\.ggml\.scores: neither scores nor merges"):
        build(replace(sentencepiece_vocabulary(), scores=[]))


def write(path: Path, **keys: object) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in keys.items():
        name = f"tokenizer.ggml.{key}"
        if isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        else:
            writer.add_string(name, str(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_faults_of_files_name_the_file_and_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    with pytest.raises(TokenizerError, match=r"model\.gguf: no GGUF file; name a .* --tokenizer-path"):
        load_tokenizer(path)
    with pytest.raises(TokenizerError, match="the file has no vocabulary"):
        load_tokenizer(write(path, model="gpt2"))
    with pytest.raises(TokenizerError, match=r"tokenizer\.ggml\.eos_token_id: 7 is no id of the 2 tokens"):
        load_tokenizer(write(path, model="gpt2", tokens=["a", "b"], eos_token_id=7))
    with pytest.raises(TokenizerError, match="no tokenizer that transformers can load"):
        load_tokenizer(tmp_path)
