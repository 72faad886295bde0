"""Rotary frequencies from a transformers config, every scaling variant applied by transformers' own functions.

Only what is the same for every sequence length is served; where transformers would switch frequencies for longer
sequences, the context is limited to the range before the switch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from motley_engine.config.errors import ConfigError
from motley_engine.config.model import LayerType, RopeParams

HF_LAYER_TYPES: Mapping[LayerType, str] = {"full": "full_attention", "sliding": "sliding_attention"}


def rope_of(config: Any, layer_types: tuple[LayerType, ...]) -> dict[LayerType, RopeParams]:
    """Frequencies of every layer type in use. ConfigError names an unknown rope type."""
    return {kind: _params(config, kind) for kind in dict.fromkeys(layer_types)}


def rope_limit(config: Any, layer_types: tuple[LayerType, ...]) -> int:
    """Positions up to which the frequencies of ``rope_of`` hold."""
    limits = [int(config.max_position_embeddings)]
    for kind in dict.fromkeys(layer_types):
        settings, _ = _settings(config, kind)
        if settings["rope_type"] == "longrope":
            limits.append(int(settings["original_max_position_embeddings"]))
    return min(limits)


def divided(params: RopeParams, factors: torch.Tensor) -> RopeParams:
    """Frequencies divided by ``factors`` [rotary_dim / 2], the form in which GGUF files carry Llama 3's scaling."""
    inv_freq = torch.tensor(params.inv_freq, dtype=torch.float32) / factors.float()
    return RopeParams(tuple(inv_freq.tolist()), params.attention_factor)


def _params(config: Any, kind: LayerType) -> RopeParams:
    settings, layer_type = _settings(config, kind)
    rope_type = settings["rope_type"]
    if rope_type == "default":
        return RopeParams(tuple(_default(config, settings).tolist()))
    # importing transformers takes seconds, and models without scaled frequencies do without it
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    function = ROPE_INIT_FUNCTIONS.get(rope_type)
    if function is None:
        known = ", ".join(("default", *ROPE_INIT_FUNCTIONS))
        raise ConfigError(f"--model-path: rope_type {rope_type!r} is not served; served: {known}")
    inv_freq, attention_factor = function(config, torch.device("cpu"), layer_type=layer_type)
    return RopeParams(tuple(inv_freq.float().tolist()), float(attention_factor))


def _settings(config: Any, kind: LayerType) -> tuple[Mapping[str, Any], str | None]:
    """The rope parameters of one layer type, and its name if they differ by type."""
    parameters = config.rope_parameters
    nested = parameters.get(HF_LAYER_TYPES[kind])
    return (nested, HF_LAYER_TYPES[kind]) if isinstance(nested, Mapping) else (parameters, None)


def _default(config: Any, settings: Mapping[str, Any]) -> torch.Tensor:
    """``theta ** (-2i / d)`` for i < d/2, in float32 as transformers computes it."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rotary = int(head_dim * settings.get("partial_rotary_factor", 1.0))
    exponents = torch.arange(0, rotary, 2, dtype=torch.float32) / rotary
    return torch.pow(float(settings["rope_theta"]), exponents).reciprocal()
