"""GGUF tokenizers equal the ones that transformers builds from the same file, and directories those it loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizer.texts import varied

from motley_engine.tokenizer import Tokenizer, load_tokenizer

BUILDS_ALIKE = (5, 24)
"""Earlier transformers converted GGUF vocabularies in other ways."""


def oracle(path: Path) -> Any:
    release = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    if release < BUILDS_ALIKE:
        pytest.skip(f"transformers {transformers.__version__} converts GGUF vocabularies differently; needs 5.24")
    return transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


def assert_equal(tokenizer: Tokenizer, expected: Any, texts: list[str]) -> None:
    for text in texts:
        ids = expected(text)["input_ids"]
        assert tokenizer.encode(text) == ids, repr(text)
        assert tokenizer.encode(text, add_special=False) == expected(text, add_special_tokens=False)["input_ids"]
        for skip in (True, False):
            assert tokenizer.decode(ids, skip) == expected.decode(ids, skip_special_tokens=skip), repr(text)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (expected.bos_token_id, expected.eos_token_id)
    assert tokenizer.vocab_size == len(expected)


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <|im_end|> there\n"},
    {"role": "assistant", "content": "yo"},
    {"role": "user", "content": "q é 日本"},
]


def test_smollm2(smollm2: Tokenizer, smollm2_path: Path, tmp_path: Path) -> None:
    expected = oracle(smollm2_path)
    assert_equal(smollm2, expected, varied(600))
    assert smollm2.encode("Hi")[0] != smollm2.bos_id
    for start in (0, 1):
        rendered = expected.apply_chat_template(CHAT[start:], add_generation_prompt=True)["input_ids"]
        assert smollm2.apply_chat_template(CHAT[start:]) == rendered
    expected.save_pretrained(tmp_path)
    assert_equal(load_tokenizer(tmp_path), expected, varied(60))


@pytest.mark.slow
def test_gemma3(gemma3: Tokenizer, gemma3_path: Path) -> None:
    # transformers takes most of a minute to read this file
    assert_equal(gemma3, oracle(gemma3_path), varied(2000))


def test_gemma3_merges_and_ends(gemma3: Tokenizer, gemma3_path: Path) -> None:
    """The same conversion, fed with our metadata: what takes transformers long is reading the file."""
    from motley_engine.tokenizer.gguf import read_vocabulary
    from motley_planner.gguf_header import read_header

    convert = getattr(pytest.importorskip("transformers.integrations.gguf"), "convert_gguf_tokenizer", None)
    if convert is None:
        pytest.skip(f"transformers {transformers.__version__} has no such conversion; needs 5.24")
    vocabulary = read_vocabulary(read_header(gemma3_path))
    keys = {"tokenizer_type": "llama", "tokens": vocabulary.tokens, "token_type": vocabulary.types}
    expected, _ = convert("gemma3", keys)
    for text in varied(2000):
        assert gemma3.encode(text, add_special=False) == expected.encode(text, add_special_tokens=False).ids, repr(text)
    assert gemma3.encode("Hi")[0] == gemma3.bos_id == 2
    assert gemma3.eos_id == 1
