"""Model types the planner knows, and in what their weights differ from plain Llama."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from motley_planner.model_facts.facts import ModelError


@dataclass(frozen=True, slots=True)
class Family:
    """One model type. ``defaults`` holds config values that published configs leave out. ``layers`` says how layer
    types follow from a config without ``layer_types``: all of one kind, a window from ``max_window_layers`` on, or
    every n-th layer full. ``qkv_bias`` is a bias whatever the config says; ``output_gate`` doubles q_proj's outputs.
    """

    architecture: str
    defaults: Mapping[str, int | bool] = field(default_factory=dict)
    layers: Literal["uniform", "tail_window", "local_global", "hybrid"] = "uniform"
    qk_norm: bool = False
    norms_per_layer: int = 2
    qkv_bias: bool = False
    output_gate: bool = False
    moe: bool = False
    shared_expert: bool = False


_GEMMA3 = Family(
    "Gemma3ForCausalLM",
    defaults={
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": True,
    },
    layers="local_global",
    qk_norm=True,
    norms_per_layer=4,
)
_GDN = {
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}
_QWEN_WINDOW = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}

FAMILIES: Mapping[str, Family] = {
    "llama": Family("LlamaForCausalLM"),
    "mistral": Family("MistralForCausalLM", {"num_key_value_heads": 8, "sliding_window": 4096}),
    "mixtral": Family("MixtralForCausalLM", {"num_key_value_heads": 8}, moe=True),
    "qwen2": Family("Qwen2ForCausalLM", _QWEN_WINDOW, layers="tail_window", qkv_bias=True),
    "qwen2_moe": Family(
        "Qwen2MoeForCausalLM", {"qkv_bias": True, "use_sliding_window": False}, moe=True, shared_expert=True
    ),
    "qwen3": Family("Qwen3ForCausalLM", {"head_dim": 128, **_QWEN_WINDOW}, layers="tail_window", qk_norm=True),
    "qwen3_moe": Family("Qwen3MoeForCausalLM", {"use_sliding_window": False}, qk_norm=True, moe=True),
    "gemma3_text": _GEMMA3,
    "qwen3_next": Family(
        "Qwen3NextForCausalLM", _GDN, layers="hybrid", qk_norm=True, output_gate=True, moe=True, shared_expert=True
    ),
    "qwen3_5_text": Family("Qwen3_5ForCausalLM", _GDN, layers="hybrid", qk_norm=True, output_gate=True),
    "qwen3_5_moe_text": Family(
        "Qwen3_5MoeForCausalLM", _GDN, layers="hybrid", qk_norm=True, output_gate=True, moe=True, shared_expert=True
    ),
}
WRAPPERS: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}
"""Multimodal model types whose ``text_config`` is one of FAMILIES."""


def family_of(model_type: str) -> Family:
    """The family of a text model type. ModelError names an unknown one."""
    family = FAMILIES.get(model_type)
    if family is None:
        known = ", ".join(sorted({*FAMILIES, *WRAPPERS}))
        raise ModelError(f"model_type: {model_type!r} is not supported; known: {known}")
    return family
