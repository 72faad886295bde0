"""How byte-level vocabularies split text into words before merging, by the name in ``tokenizer.ggml.pre``.

None is GPT-2's own rule, built into ``tokenizers``. Names that mean the same rule come from models that share it.
"""

from __future__ import annotations

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"

_LLAMA3 = rf"{_CONTRACTION}|{_LEAD}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_QWEN2 = rf"{_CONTRACTION}|{_LEAD}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_TEKKEN = rf"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"

SPLITS: dict[str, str | None] = {
    **dict.fromkeys(("default", "gpt-2", "smollm", "mpt", "olmo", "phi-2", "exaone"), None),
    **dict.fromkeys(
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "smaug-bpe", "dbrx", "midm-2.0"), _LLAMA3
    ),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"), _QWEN2),
    "tekken": _TEKKEN,
}

BOS_BY_DEFAULT = frozenset({"llama3", "llama-v3", "llama-bpe", "tekken"})
"""Vocabularies that start texts with BOS where the file does not say."""
