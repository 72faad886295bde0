"""Tokenizers under test: two real GGUF vocabularies and a small SentencePiece one of our own."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.packaged import GEMMA3, SMOLLM2, packaged
from hypothesis import settings

from motley_engine.tokenizer import Tokenizer, load_tokenizer
from motley_engine.tokenizer.gguf import BYTE, CONTROL, UNKNOWN, Vocabulary, build

settings.register_profile("motley", deadline=None)
settings.load_profile("motley")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    return packaged(SMOLLM2).path


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    return packaged(GEMMA3).path


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Tokenizer:
    return load_tokenizer(smollm2_path)


@pytest.fixture(scope="session")
def gemma3(gemma3_path: Path) -> Tokenizer:
    return load_tokenizer(gemma3_path)


def sentencepiece_vocabulary(**changes: object) -> Vocabulary:
    """Llama 2's kind in small: specials, 256 bytes, then letters and words whose scores rank the merges."""
    pieces = [
        "▁",
        "a",
        "b",
        "c",
        "h",
        "e",
        "l",
        "o",
        "w",
        "r",
        "d",
        "▁h",
        "he",
        "ll",
        "llo",
        "▁he",
        "▁hello",
        "lo",
        "é",
    ]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    values: dict[str, object] = {
        "architecture": "llama",
        "model": "llama",
        "pre": "default",
        "tokens": tokens,
        "types": [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[1] * len(pieces)],
        "scores": [0.0] * 259 + [-float(rank) for rank in range(len(pieces))],
        "merges": [],
        "bos": 1,
        "eos": 2,
        "unk": 0,
        "pad": None,
        "add_bos": True,
        "add_eos": False,
        "add_space": True,
        "chat_template": None,
    }
    return Vocabulary(**{**values, **changes})


@pytest.fixture(scope="session")
def sentencepiece() -> Tokenizer:
    return build(sentencepiece_vocabulary())
