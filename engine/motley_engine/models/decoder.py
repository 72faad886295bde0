"""What all decoders share: embedding, a stack of layers around one residual stream, final norm, LM head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from motley_engine.cache.pools import KVPools
from motley_engine.config.model import LayerType
from motley_engine.layers.attention import Attention, AttentionStep
from motley_engine.layers.build import Build
from motley_engine.layers.context import ForwardContext
from motley_engine.layers.mlp import GatedMLP
from motley_engine.layers.norm import RMSNorm
from motley_engine.layers.rotary import Rotary
from motley_engine.layers.vocab import Embedding, LMHead, VocabRows
from motley_engine.loader.checkpoint import Piece


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Attention and MLP, each with a norm before it and, in sandwich models, one after it."""

    attention_norm: RMSNorm
    attention: Attention
    mlp_norm: RMSNorm
    mlp: GatedMLP
    after_attention: RMSNorm | None = None
    after_mlp: RMSNorm | None = None

    def __call__(self, branch: torch.Tensor | None, residual: torch.Tensor, step: AttentionStep) -> torch.Tensor:
        """Take the previous layer's ``branch`` into ``residual`` (in place) and return this layer's own branch, which
        is not yet added. The first layer has none to take."""
        x = self.attention_norm(residual) if branch is None else self.attention_norm.add(branch, residual)
        x = self.attention(x, step)
        if self.after_attention is not None:
            x = self.after_attention(x)
        x = self.mlp(self.mlp_norm.add(x, residual))
        return x if self.after_mlp is None else self.after_mlp(x)

    def pieces(self) -> Iterator[Piece]:
        parts = (self.attention_norm, self.attention, self.mlp_norm, self.mlp, self.after_attention, self.after_mlp)
        for part in parts:
            if part is not None:
                yield from part.pieces()


class Decoder(ABC):
    """A causal language model; architectures differ in ``make_layer``. Implements the ``Model`` protocol."""

    def __init__(self, build: Build) -> None:
        config = build.config
        self._layer_types = config.layer_types
        self._rotary = {kind: Rotary(config.rope[kind], build.device) for kind in dict.fromkeys(config.layer_types)}
        rows = VocabRows(build, "model.embed_tokens")
        head_rows = rows if config.tied_embeddings else VocabRows(build, "lm_head")
        self._vocab = (rows,) if config.tied_embeddings else (rows, head_rows)
        self._embedding = Embedding(build, rows)
        self._layers = [self.make_layer(build, index, f"model.layers.{index}") for index in range(config.num_layers)]
        self._norm = RMSNorm(build, "model.norm", config.hidden_size)
        self._head = LMHead(build, head_rows)

    @abstractmethod
    def make_layer(self, build: Build, index: int, name: str) -> DecoderLayer:
        """Layer ``index``, whose tensors start with ``name`` in the checkpoint."""

    def bind_cache(self, pools: KVPools) -> None:
        for layer in self._layers:
            layer.attention.bind_cache(pools)

    def forward(self, tokens: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        steps = {kind: self._step(kind, ctx) for kind in self._rotary}
        residual = self._embedding(tokens)
        branch: torch.Tensor | None = None
        for layer, kind in zip(self._layers, self._layer_types, strict=True):
            branch = layer(branch, residual, steps[kind])
        return self._norm(residual) if branch is None else self._norm.add(branch, residual)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor | None:
        return self._head(hidden)

    def pieces(self) -> Iterator[Piece]:
        for part in (*self._vocab, *self._layers, self._norm):
            yield from part.pieces()

    def _step(self, kind: LayerType, ctx: ForwardContext) -> AttentionStep:
        meta = ctx.full if kind == "full" else ctx.sliding
        if meta is None:
            raise ValueError("the model has sliding-window layers; the step brings no pages for them")
        return AttentionStep.of(ctx, meta, self._rotary[kind])
