"""Model facts from a GGUF file: sizes from its metadata, weights and quantisation blocks from its tensor table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import lcm
from pathlib import Path
from typing import Any

from motley_planner.gguf_header import GGUFArray, GGUFError, GGUFHeader, GGUFTensor, read_header
from motley_planner.model_facts.facts import ModelError, ModelFacts, ModelWeights, QuantBlocks, Weights
from motley_planner.model_facts.hf import facts_from_hf_config

MODEL_TYPES: Mapping[str, str] = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen2moe": "qwen2_moe",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "gemma3": "gemma3_text",
}
"""GGUF ``general.architecture`` to Hugging Face model type."""

_FAMILIES: Mapping[str, str] = {
    "token_embd": "embedding",
    "output": "lm_head",
    "output_norm": "replicated",
    "attn_q": "attn_q",
    "attn_output": "attn_q",
    "attn_k": "attn_kv",
    "attn_v": "attn_kv",
    "ffn_gate": "mlp",
    "ffn_up": "mlp",
    "ffn_down": "mlp",
    "ffn_gate_shexp": "mlp",
    "ffn_up_shexp": "mlp",
    "ffn_down_shexp": "mlp",
    "ffn_gate_exps": "expert",
    "ffn_up_exps": "expert",
    "ffn_down_exps": "expert",
    "ffn_gate_inp": "replicated",
    "ffn_gate_inp_shexp": "replicated",
    "attn_norm": "replicated",
    "attn_q_norm": "replicated",
    "attn_k_norm": "replicated",
    "ffn_norm": "replicated",
    "post_attention_norm": "replicated",
    "post_ffw_norm": "replicated",
}
_ROW_PARALLEL: Mapping[str, str] = {
    "attn_output": "attn",
    "ffn_down": "mlp",
    "ffn_down_shexp": "mlp",
    "ffn_down_exps": "expert",
}
"""Tensors whose last dimension, the one with the blocks, is cut over ranks."""
_ADDED_ONCE = ("attn_output.bias", "ffn_down.bias")
_TABLES = ("rope_freqs.weight",)
"""Tensors that are constants, not parameters."""
_LAYER = re.compile(r"^blk\.(\d+)\.")


def facts_from_gguf(path: Path | str) -> ModelFacts:
    """Facts of the model in the GGUF file ``path``; reads its header only.

    ModelError names an unsupported architecture or an unexpected tensor; GGUFError a file that cannot be read.
    """
    header = read_header(Path(path))
    if header.metadata.get("split.count", 1) not in (0, 1):
        raise ModelError(f"{header.path}: split over several GGUF files; merge them with llama-gguf-split --merge")
    facts = facts_from_hf_config(_config(header))
    weights, blocks = _tensor_weights(header)
    return replace(facts, weights=weights, blocks=blocks)


def _config(header: GGUFHeader) -> dict[str, Any]:
    """The Hugging Face config that the metadata stands for."""
    architecture = header.metadata.get("general.architecture")
    if architecture not in MODEL_TYPES:
        raise ModelError(f"general.architecture: {architecture!r} is not supported; known: {', '.join(MODEL_TYPES)}")
    embedding = _tensor(header, "token_embd.weight")

    def get(key: str) -> int | None:
        value = header.metadata.get(f"{architecture}.{key}")
        if isinstance(value, GGUFArray):
            raise ModelError(f"{architecture}.{key}: per-layer values are not supported")
        return None if value is None else _whole(f"{architecture}.{key}", value)

    experts = get("expert_count")
    config = {
        "model_type": "mixtral" if architecture == "llama" and experts else MODEL_TYPES[str(architecture)],
        "num_hidden_layers": get("block_count"),
        "hidden_size": get("embedding_length"),
        "intermediate_size": get("feed_forward_length"),
        "num_attention_heads": get("attention.head_count"),
        "num_key_value_heads": get("attention.head_count_kv") or get("attention.head_count"),
        "head_dim": get("attention.key_length"),
        "max_position_embeddings": get("context_length"),
        "vocab_size": embedding.shape[0],
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "sliding_window": get("attention.sliding_window"),
        "qkv_bias": "blk.0.attn_q.bias" in header.tensors,
        "num_local_experts": experts,
        "num_experts_per_tok": get("expert_used_count"),
        "moe_intermediate_size": get("expert_feed_forward_length"),
        "shared_expert_intermediate_size": get("expert_shared_feed_forward_length"),
        "mlp_only_layers": _dense_layers(header) if experts else None,
        "dtype": "float32" if embedding.type_name == "F32" else "bfloat16",
    }
    config["attention_bias"] = "blk.0.attn_output.bias" in header.tensors
    config["mlp_bias"] = "blk.0.ffn_down.bias" in header.tensors
    return config


def _whole(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ModelError(f"{key}: {value!r} is no integer")
    return value


def _tensor(header: GGUFHeader, name: str) -> GGUFTensor:
    tensor = header.tensors.get(name)
    if tensor is None:
        raise ModelError(f"{header.path}: tensor {name} is missing")
    return tensor


def _dense_layers(header: GGUFHeader) -> list[int]:
    """Layers of a mixture-of-experts model that have a plain MLP."""
    found = (re.fullmatch(r"blk\.(\d+)\.ffn_down\.weight", name) for name in header.tensors)
    return sorted(int(match.group(1)) for match in found if match)


def _tensor_weights(header: GGUFHeader) -> tuple[ModelWeights, QuantBlocks]:
    """Parameters and stored bytes per family, and the blocks along the dimensions that are cut."""
    weights: dict[str, Weights] = {}
    blocks = {"attn": 1, "mlp": 1, "expert": 1}
    for tensor in header.tensors.values():
        if tensor.name in _TABLES:
            continue
        short = _LAYER.sub("", tensor.name)
        base = short.rsplit(".", 1)[0]
        family = "replicated" if short in _ADDED_ONCE else _FAMILIES.get(base)
        if family is None:
            raise ModelError(f"{header.path}: tensor {tensor.name} belongs to no supported layer")
        weights[family] = weights.get(family, Weights()) + Weights(tensor.params, tensor.stored_bytes)
        if base in _ROW_PARALLEL:
            blocks[_ROW_PARALLEL[base]] = lcm(blocks[_ROW_PARALLEL[base]], tensor.block)
    return ModelWeights(**weights), QuantBlocks(**blocks)


__all__ = ["MODEL_TYPES", "GGUFError", "facts_from_gguf"]
