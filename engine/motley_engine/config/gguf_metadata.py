"""The model config that a GGUF file's metadata stands for, with the attributes of transformers' config classes.

Sizes come from the planner's facts; this adds what only the arithmetic needs. It gives what transformers reads from the
same file, and also honours the file's rope scaling, which transformers leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from motley_engine.config.errors import ConfigError
from motley_planner.gguf_header import GGUFHeader
from motley_planner.model_facts import ModelFacts

END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
"""Tokens that end an answer, under ``tokenizer.ggml``: of the text, the turn and the message."""
SCALINGS = {"linear": "linear", "yarn": "yarn"}
LOCAL_THETA = 10000.0
"""Base of Gemma 3's sliding layers, which most files leave out."""


def gguf_config(header: GGUFHeader, facts: ModelFacts) -> Any:
    """The config of the model in ``header``. ConfigError names a metadata key at fault."""
    prefix = str(header.metadata["general.architecture"])
    rope = _rope(header.metadata, prefix)
    values = _common(header.metadata, prefix, facts) | {"rope_parameters": rope}
    if facts.architecture == "Gemma3ForCausalLM":
        values |= _gemma3(header.metadata, prefix, facts, rope)
    if rope["rope_type"] == "default":
        return SimpleNamespace(**values)
    # importing transformers takes seconds; only scaled frequencies need it, computed from its own config classes
    from transformers import AutoConfig

    return AutoConfig.for_model(**values)


def _common(values: Mapping[str, object], prefix: str, facts: ModelFacts) -> dict[str, Any]:
    return {
        "model_type": facts.model_type,
        "architectures": [facts.architecture],
        "hidden_size": facts.hidden_size,
        "intermediate_size": facts.intermediate_size,
        "num_hidden_layers": facts.num_layers,
        "num_attention_heads": facts.q_heads,
        "num_key_value_heads": facts.kv_heads,
        "head_dim": facts.head_dim,
        "max_position_embeddings": facts.max_position,
        "vocab_size": facts.vocab_size,
        "tie_word_embeddings": facts.tied_embeddings,
        "hidden_act": "silu",
        "rms_norm_eps": _number(values, f"{prefix}.attention.layer_norm_rms_epsilon"),
        "bos_token_id": values.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": end_ids(values) or None,
    }


def _gemma3(values: Mapping[str, object], prefix: str, facts: ModelFacts, rope: dict[str, Any]) -> dict[str, Any]:
    local = _number(values, f"{prefix}.rope.freq_base_swa", LOCAL_THETA)
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": facts.head_dim,
        "sliding_window": facts.sliding_window,
        "rope_parameters": {
            "full_attention": rope,
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
        },
    }


def end_ids(values: Mapping[str, object]) -> list[int]:
    """Every id that ends generation, without repeats."""
    found = (values.get(f"tokenizer.ggml.{key}") for key in END_KEYS)
    return list(dict.fromkeys(index for index in found if isinstance(index, int)))


def _rope(values: Mapping[str, object], prefix: str) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": _number(values, f"{prefix}.rope.freq_base", 10000.0)}
    scaling = values.get(f"{prefix}.rope.scaling.type", "none")
    if scaling == "none":
        return rope
    if scaling not in SCALINGS:
        raise ConfigError(f"{prefix}.rope.scaling.type: {scaling!r} is not served; served: none, {', '.join(SCALINGS)}")
    rope["rope_type"] = SCALINGS[str(scaling)]
    rope["factor"] = _number(values, f"{prefix}.rope.scaling.factor")
    original = values.get(f"{prefix}.rope.scaling.original_context_length")
    if scaling == "yarn" and original is not None:
        rope["original_max_position_embeddings"] = original
    return rope


def _number(values: Mapping[str, object], key: str, default: float | None = None) -> float:
    value = values.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{key}: {'missing' if value is None else repr(value)}; the GGUF file must state a number")
    return float(value)
