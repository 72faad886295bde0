"""What planner and engine know of a model's sizes: whole-model numbers, the same for every checkpoint format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Literal

LayerKind = Literal["full", "sliding", "linear"]


class ModelError(ValueError):
    """A model that motley cannot plan for. The text names the model type, the field or the tensor, and the fault."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Parameters of one weight family over all layers, and their bytes as the checkpoint stores them."""

    params: int = 0
    stored_bytes: int = 0

    def __add__(self, other: Weights) -> Weights:
        return Weights(self.params + other.params, self.stored_bytes + other.stored_bytes)

    def bytes(self, element_size: int | None = None) -> int:
        """Bytes at ``element_size`` bytes per parameter (weights expanded at load), or as stored."""
        return self.stored_bytes if element_size is None else self.params * element_size


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """Weights by what cuts them: query heads (q, o), kv heads (k, v), MLP columns (dense and shared experts), expert
    columns, GDN key heads, vocabulary rows (embedding and lm_head, the latter empty if tied). The rest is replicated.
    """

    attn_q: Weights = Weights()
    attn_kv: Weights = Weights()
    mlp: Weights = Weights()
    expert: Weights = Weights()
    gdn: Weights = Weights()
    embedding: Weights = Weights()
    lm_head: Weights = Weights()
    replicated: Weights = Weights()

    @property
    def total(self) -> Weights:
        parts: list[Weights] = [getattr(self, item.name) for item in fields(self)]
        return sum(parts, Weights())


@dataclass(frozen=True, slots=True)
class QuantBlocks:
    """Elements of a quantisation block along the dimension that is cut over ranks; 1 if there are no blocks."""

    attn: int = 1
    mlp: int = 1
    expert: int = 1
    gdn: int = 1


@dataclass(frozen=True, slots=True)
class GdnFacts:
    """Gated-delta-net mixers. ``conv_kernel`` counts taps; ``ba_tile`` is the width multiple that the small b/a
    projection's kernel needs (1 where it is not quantised)."""

    layers: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    ba_tile: int = 1

    @property
    def values_per_key(self) -> int:
        """Value heads per key head."""
        return self.value_heads // self.key_heads

    def recurrent_bytes(self, element_size: int, key_heads: int | None = None) -> int:
        """Recurrent state of one sequence over all layers, for ``key_heads`` key heads (default: all)."""
        heads = self.key_heads if key_heads is None else key_heads
        return self.layers * heads * self.values_per_key * self.key_dim * self.value_dim * element_size

    def conv_bytes(self, element_size: int, key_heads: int | None = None) -> int:
        """Convolution tail of one sequence over all layers, for ``key_heads`` key heads (default: all)."""
        heads = self.key_heads if key_heads is None else key_heads
        channels = heads * (2 * self.key_dim + self.values_per_key * self.value_dim)
        return self.layers * channels * (self.conv_kernel - 1) * element_size

    def state_bytes(self, element_size: int, key_heads: int | None = None) -> int:
        """Bytes of one state slot: recurrent state and convolution tail."""
        return self.recurrent_bytes(element_size, key_heads) + self.conv_bytes(element_size, key_heads)


@dataclass(frozen=True, slots=True)
class MoeFacts:
    """Mixture of experts: intermediate widths of one routed expert and of the shared expert (0: none)."""

    layers: int
    experts: int
    top_k: int
    expert_size: int
    shared_size: int = 0


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Sizes of a model. ``intermediate_size`` is the dense MLP's width (0 if every layer is a mixture of experts);
    ``sliding_window`` is 0 without sliding layers; ``dtype_size`` is the checkpoint's bytes per unquantised element."""

    architecture: str
    model_type: str
    num_layers: int
    hidden_size: int
    q_heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position: int
    tied_embeddings: bool
    layer_types: tuple[LayerKind, ...]
    sliding_window: int = 0
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    dtype_size: int = 2
    weights: ModelWeights = field(default_factory=ModelWeights)
    blocks: QuantBlocks = field(default_factory=QuantBlocks)
    gdn: GdnFacts | None = None
    moe: MoeFacts | None = None

    def __post_init__(self) -> None:
        positive = ("num_layers", "hidden_size", "q_heads", "kv_heads", "head_dim", "vocab_size", "max_position")
        for name in positive:
            if getattr(self, name) < 1:
                raise ModelError(f"{self.model_type}: {name} is {getattr(self, name)}; it must be positive")
        if self.q_heads % self.kv_heads:
            raise ModelError(
                f"{self.model_type}: {self.q_heads} query heads are no multiple of {self.kv_heads} kv heads"
            )
        if len(self.layer_types) != self.num_layers:
            raise ModelError(f"{self.model_type}: {len(self.layer_types)} layer types for {self.num_layers} layers")
        if self.sliding_layers and self.sliding_window < 1:
            raise ModelError(
                f"{self.model_type}: sliding layers without a window (sliding_window {self.sliding_window})"
            )

    @property
    def params(self) -> int:
        """Parameters of the text model; tied embeddings count once."""
        return self.weights.total.params

    @property
    def full_layers(self) -> int:
        return self.layer_types.count("full")

    @property
    def sliding_layers(self) -> int:
        return self.layer_types.count("sliding")

    def kv_bytes(self, kind: LayerKind, element_size: int, kv_heads: int | None = None) -> int:
        """KV bytes per token over all layers of ``kind``, for ``kv_heads`` heads (default: all)."""
        heads = self.kv_heads if kv_heads is None else kv_heads
        return self.layer_types.count(kind) * heads * 2 * self.head_dim * element_size

    def state_bytes(self, element_size: int) -> int:
        """Recurrent state per sequence (0 without such layers)."""
        return self.gdn.state_bytes(element_size) if self.gdn else 0


def even_pattern(num_layers: int, period: int, rest: LayerKind) -> tuple[LayerKind, ...]:
    """``rest`` everywhere but every ``period``-th layer, which is full attention."""
    return tuple("full" if (index + 1) % period == 0 else rest for index in range(num_layers))


def check_kinds(kinds: Sequence[str]) -> tuple[LayerKind, ...]:
    """Hugging Face layer type names as ours. ModelError names one that is not known."""
    known: dict[str, LayerKind] = {
        "full_attention": "full",
        "sliding_attention": "sliding",
        "linear_attention": "linear",
    }
    for kind in kinds:
        if kind not in known:
            raise ModelError(f"layer_types: {kind!r} is not supported; known: {', '.join(known)}")
    return tuple(known[kind] for kind in kinds)
