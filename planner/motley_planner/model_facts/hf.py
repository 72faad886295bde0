"""Model facts from a Hugging Face ``config.json``: sizes as given, weights counted from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from motley_planner.model_facts.facts import (
    GdnFacts,
    LayerKind,
    ModelError,
    ModelFacts,
    MoeFacts,
    QuantBlocks,
    check_kinds,
    even_pattern,
)
from motley_planner.model_facts.families import WRAPPERS, Family, family_of
from motley_planner.model_facts.quant import linear_storage
from motley_planner.model_facts.weights import count_weights

DTYPE_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class _Reader:
    """Typed access to a config; absent and null values fall back to the family's defaults."""

    model_type: str
    config: Mapping[str, Any]
    family: Family

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.config.get(name)
        if value is None:
            value = self.family.defaults.get(name, default)
        if value is None:
            raise ModelError(f"{self.model_type}: the config lacks {name}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ModelError(f"{self.model_type}: {name} is {value!r}; it must be a non-negative integer")
        return value

    def flag(self, name: str) -> bool:
        value = self.config.get(name)
        if value is None:
            value = self.family.defaults.get(name, False)
        if not isinstance(value, bool):
            raise ModelError(f"{self.model_type}: {name} is {value!r}; it must be true or false")
        return value

    def strings(self, name: str) -> tuple[str, ...]:
        value = self.config.get(name) or ()
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise ModelError(f"{self.model_type}: {name} must be a list of strings")
        return tuple(value)

    def integers(self, name: str) -> tuple[int, ...]:
        value = self.config.get(name) or ()
        if not isinstance(value, list | tuple) or not all(type(item) is int for item in value):
            raise ModelError(f"{self.model_type}: {name} must be a list of integers")
        return tuple(value)


def facts_from_hf_config(config: Mapping[str, Any], bytes_per_param: int | None = None) -> ModelFacts:
    """Facts of the text model that ``config`` describes; a nested ``text_config`` is found by itself.

    ``bytes_per_param`` is the stored size of an unquantised element, default: from the config's dtype (2 if it names
    none). ModelError names an unsupported model type, or the field at fault.
    """
    text, model_type = _text_config(config)
    read = _Reader(model_type, text, family_of(model_type))
    if read.flag("use_bidirectional_attention"):
        raise ModelError(f"{model_type}: use_bidirectional_attention is set; embedding models are not supported")
    dtype_size = bytes_per_param or _dtype_size(config, text)
    kinds, window = _layers(read)
    dense, moe = _mlp(read)
    q_heads = read.integer("num_attention_heads")
    facts = ModelFacts(
        architecture=read.family.architecture,
        model_type=model_type,
        num_layers=read.integer("num_hidden_layers"),
        hidden_size=read.integer("hidden_size"),
        q_heads=q_heads,
        kv_heads=read.integer("num_key_value_heads", q_heads),
        head_dim=read.integer("head_dim", read.integer("hidden_size") // max(q_heads, 1)),
        intermediate_size=dense,
        vocab_size=read.integer("vocab_size"),
        max_position=read.integer("max_position_embeddings"),
        tied_embeddings=_tied(config, read),
        layer_types=kinds,
        sliding_window=window,
        qkv_bias=read.family.qkv_bias or read.flag("qkv_bias") or read.flag("attention_bias"),
        o_bias=read.flag("attention_bias"),
        mlp_bias=read.flag("mlp_bias"),
        qk_norm=read.family.qk_norm,
        dtype_size=dtype_size,
        gdn=_gdn(read, kinds),
        moe=moe,
    )
    storage = linear_storage(config if "quantization_config" in config else text, dtype_size)
    gdn = facts.gdn
    if gdn and storage.quantised and not storage.skips("linear_attn.in_proj_ba"):
        gdn = replace(gdn, ba_tile=8)
    blocks = QuantBlocks(storage.block, storage.block, storage.block, storage.block)
    return replace(facts, weights=count_weights(facts, read.family, storage), blocks=blocks, gdn=gdn)


def _text_config(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise ModelError("model_type: the config names none")
    if model_type not in WRAPPERS:
        return config, model_type
    text = config.get("text_config")
    if not isinstance(text, Mapping):
        raise ModelError(f"{model_type}: text_config is missing")
    return text, WRAPPERS[model_type]


def _dtype_size(config: Mapping[str, Any], text: Mapping[str, Any]) -> int:
    named = [source.get(key) for source in (config, text) for key in ("dtype", "torch_dtype")]
    dtype = next((str(name).removeprefix("torch.") for name in named if name), "bfloat16")
    if dtype not in DTYPE_SIZES:
        raise ModelError(f"dtype: {dtype!r} is not supported; known: {', '.join(DTYPE_SIZES)}")
    return DTYPE_SIZES[dtype]


def _tied(config: Mapping[str, Any], read: _Reader) -> bool:
    outer = config.get("tie_word_embeddings")
    return outer if isinstance(outer, bool) else read.flag("tie_word_embeddings")


def _layers(read: _Reader) -> tuple[tuple[LayerKind, ...], int]:
    """Layer kinds, and the sliding window (0 without sliding layers)."""
    count = read.integer("num_hidden_layers")
    if read.strings("layer_types"):
        kinds = check_kinds(read.strings("layer_types"))
    elif read.family.layers == "hybrid":
        kinds = even_pattern(count, read.integer("full_attention_interval", 4), "linear")
    elif read.family.layers == "local_global":
        period = read.integer("sliding_window_pattern", read.integer("_sliding_window_pattern", 6))
        kinds = even_pattern(count, period, "sliding")
    else:
        kinds = _windowed(read, count)
    return kinds, read.integer("sliding_window", 0) if "sliding" in kinds else 0


def _windowed(read: _Reader, count: int) -> tuple[LayerKind, ...]:
    """Kinds of a model whose config switches one window on or off, wholly or from some layer on."""
    if "sliding_window" in read.config:
        window = read.config["sliding_window"]
    else:
        window = read.family.defaults.get("sliding_window")
    switched_off = "use_sliding_window" in read.family.defaults and not read.flag("use_sliding_window")
    if not window or switched_off:
        return _kinds("full", count)
    full = min(read.integer("max_window_layers"), count) if read.family.layers == "tail_window" else 0
    return _kinds("full", full) + _kinds("sliding", count - full)


def _kinds(kind: LayerKind, count: int) -> tuple[LayerKind, ...]:
    return (kind,) * count


def _mlp(read: _Reader) -> tuple[int, MoeFacts | None]:
    """Width of the dense MLP (0 if every layer is sparse), and the mixture of experts."""
    if not read.family.moe:
        return read.integer("intermediate_size"), None
    experts = read.integer("num_local_experts", read.integer("num_experts", 0))
    if not experts:
        return read.integer("intermediate_size"), None
    count, step = read.integer("num_hidden_layers"), read.integer("decoder_sparse_step", 1)
    dense_only = set(read.integers("mlp_only_layers"))
    sparse = sum(1 for index in range(count) if index not in dense_only and (index + 1) % max(step, 1) == 0)
    moe = MoeFacts(
        layers=sparse,
        experts=experts,
        top_k=read.integer("num_experts_per_tok"),
        expert_size=read.integer("moe_intermediate_size", read.integer("intermediate_size", 0)),
        shared_size=read.integer("shared_expert_intermediate_size", 0) if read.family.shared_expert else 0,
    )
    return read.integer("intermediate_size") if sparse < count else 0, moe


def _gdn(read: _Reader, kinds: tuple[LayerKind, ...]) -> GdnFacts | None:
    if "linear" not in kinds:
        return None
    gdn = GdnFacts(
        layers=kinds.count("linear"),
        key_heads=read.integer("linear_num_key_heads"),
        value_heads=read.integer("linear_num_value_heads"),
        key_dim=read.integer("linear_key_head_dim"),
        value_dim=read.integer("linear_value_head_dim"),
        conv_kernel=read.integer("linear_conv_kernel_dim"),
    )
    if gdn.key_heads < 1 or gdn.value_heads % gdn.key_heads:
        raise ModelError(
            f"{read.model_type}: linear_num_value_heads {gdn.value_heads} is no multiple of "
            f"linear_num_key_heads {gdn.key_heads}"
        )
    return gdn
