"""What the engine knows of a model: plain numbers, the same for every checkpoint format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from motley_planner.model_facts import ModelFacts

LayerType = Literal["full", "sliding"]


@dataclass(frozen=True, slots=True)
class RopeParams:
    """Rotary embedding of one layer type. ``inv_freq`` has rotary_dim/2 entries with every scaling variant applied;
    ``attention_factor`` multiplies cos and sin (YaRN, LongRoPE)."""

    inv_freq: tuple[float, ...]
    attention_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Resolved architecture. Sizes are whole-model, never per rank.

    ``query_scale`` multiplies q.k (0: 1 / sqrt(head_dim)); soft caps of 0 are off.
    """

    architecture: str
    facts: ModelFacts
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    activation: Literal["silu", "gelu_tanh"]
    max_position: int
    layer_types: tuple[LayerType, ...]
    sliding_window: int
    rope: dict[LayerType, RopeParams]
    tied_embeddings: bool
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    unit_offset_norm: bool = False
    sandwich_norms: bool = False
    query_scale: float = 0.0
    embedding_scale: float = 1.0
    attention_softcap: float = 0.0
    logits_softcap: float = 0.0
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    model_type: str = ""
