"""Resolves a checkpoint to the ModelConfig that the engine runs, whatever its format.

Sizes are the planner's facts, so that what is planned is what runs; arithmetic (activation, rope, scales, end tokens)
is what transformers says.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from motley_engine.config.errors import ConfigError
from motley_engine.config.gguf_metadata import gguf_config
from motley_engine.config.model import LayerType, ModelConfig
from motley_engine.config.rope import divided, rope_limit, rope_of
from motley_planner.gguf_header import GGUFError, GGUFHeader, read_header
from motley_planner.model_facts import ModelError, ModelFacts
from motley_planner.sources import ResolvedModel, SourceError, model_facts, read_config

ROPE_TABLE = "rope_freqs.weight"
"""Tensor of a GGUF file that divides the rotary frequencies."""
ACTIVATIONS: dict[str, Literal["silu", "gelu_tanh"]] = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


@dataclass(frozen=True, slots=True)
class Traits:
    """What a served architecture computes beyond a plain Llama block."""

    gemma: bool = False


SERVED: dict[str, Traits] = {
    "LlamaForCausalLM": Traits(),
    "MistralForCausalLM": Traits(),
    "Qwen2ForCausalLM": Traits(),
    "Qwen3ForCausalLM": Traits(),
    "Gemma3ForCausalLM": Traits(gemma=True),
}
"""By ``architectures`` in the config; Gemma3ForConditionalGeneration is served as its text model."""


def model_config(model: ResolvedModel) -> ModelConfig:
    """The resolved architecture of ``model``. ConfigError names what is not served, and what is."""
    try:
        if model.format != "gguf":
            _refuse_quantised(model)
        facts = model_facts(model)
        header = read_header(model.path) if model.format == "gguf" else None
    except (ModelError, SourceError, GGUFError) as error:
        raise ConfigError(f"--model-path: {error}") from error
    traits = SERVED.get(facts.architecture)
    if traits is None:
        served = ", ".join((*SERVED, "Gemma3ForConditionalGeneration (text)"))
        raise ConfigError(f"--model-path: architecture {facts.architecture} is not served; served: {served}")
    if header is not None:
        return _with_rope_table(_resolve(facts, traits, gguf_config(header, facts)), header)
    return _resolve(facts, traits, _text_config(model), generation_defaults(model).get("eos_token_id"))


def generation_defaults(model: ResolvedModel) -> dict[str, Any]:
    """``generation_config.json`` of a checkpoint directory; empty for GGUF files and where there is none."""
    path = model.path / "generation_config.json"
    if model.format == "gguf" or not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--model-path: {path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"--model-path: {path} holds no JSON object")
    return values


def _refuse_quantised(model: ResolvedModel) -> None:
    config = read_config(model.path)
    method = config.get("quantization_config") or (config.get("text_config") or {}).get("quantization_config")
    if method:
        raise ConfigError(
            f"--model-path: {model.uri} is quantised ({method.get('quant_method', 'unknown')}), which is not read from "
            "safetensors; use the unquantised checkpoint or a GGUF file"
        )


def _text_config(model: ResolvedModel) -> Any:
    """transformers' config of the text model in a checkpoint directory."""
    # importing transformers takes seconds, and GGUF files do without it
    from transformers import AutoConfig

    try:
        outer = AutoConfig.from_pretrained(str(model.path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"--model-path: {model.path / 'config.json'}: transformers refuses it: {error}") from error
    text = outer.get_text_config()
    if getattr(text, "eos_token_id", None) is None:
        text.eos_token_id = outer.eos_token_id
    return text


def _end_ids(found: int | list[int] | None) -> tuple[int, ...]:
    """Config files state one id or a list."""
    if found is None:
        return ()
    return tuple(found) if isinstance(found, list) else (found,)


def _resolve(facts: ModelFacts, traits: Traits, config: Any, end_ids: Any = None) -> ModelConfig:
    """``config`` has the attributes of transformers' text configs; ``end_ids`` replace its own if not None."""
    layer_types: tuple[LayerType, ...] = tuple("sliding" if kind == "sliding" else "full" for kind in facts.layer_types)
    query_scalar = config.query_pre_attn_scalar if traits.gemma else facts.head_dim
    return ModelConfig(
        architecture=facts.architecture,
        model_type=facts.model_type,
        facts=facts,
        vocab_size=facts.vocab_size,
        hidden_size=facts.hidden_size,
        intermediate_size=facts.intermediate_size,
        num_layers=facts.num_layers,
        num_q_heads=facts.q_heads,
        num_kv_heads=facts.kv_heads,
        head_dim=facts.head_dim,
        norm_eps=float(config.rms_norm_eps),
        activation=_activation(config),
        max_position=rope_limit(config, layer_types),
        layer_types=layer_types,
        sliding_window=facts.sliding_window,
        rope=rope_of(config, layer_types),
        tied_embeddings=facts.tied_embeddings,
        qkv_bias=facts.qkv_bias,
        o_bias=facts.o_bias,
        mlp_bias=facts.mlp_bias,
        qk_norm=facts.qk_norm,
        unit_offset_norm=traits.gemma,
        sandwich_norms=traits.gemma,
        query_scale=float(query_scalar) ** -0.5,
        embedding_scale=facts.hidden_size**0.5 if traits.gemma else 1.0,
        attention_softcap=float(getattr(config, "attn_logit_softcapping", None) or 0.0),
        logits_softcap=float(getattr(config, "final_logit_softcapping", None) or 0.0),
        bos_token_id=config.bos_token_id,
        eos_token_ids=_end_ids(config.eos_token_id if end_ids is None else end_ids),
    )


def _activation(config: Any) -> Literal["silu", "gelu_tanh"]:
    name = getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", None)
    if name not in ACTIVATIONS:
        raise ConfigError(f"--model-path: activation {name!r} is not served; served: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _with_rope_table(config: ModelConfig, header: GGUFHeader) -> ModelConfig:
    """The config with the file's own divisors of the rotary frequencies, if it has them."""
    table = header.tensors.get(ROPE_TABLE)
    if table is None:
        return config
    with header.path.open("rb") as file:
        file.seek(table.offset)
        factors = torch.frombuffer(bytearray(file.read(table.stored_bytes)), dtype=torch.float32)
    return replace(config, rope={kind: divided(params, factors) for kind, params in config.rope.items()})
