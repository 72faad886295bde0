"""Gated feed-forward block with its columns cut over the ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from motley_engine.layers.build import Build
from motley_engine.layers.linear import ColumnParallel, RowParallel
from motley_engine.loader.checkpoint import Piece
from motley_kernels.gated_activation import gelu_tanh_mul, silu_mul


class GatedMLP:
    """``down(act(gate(x)) * up(x))``; ``name`` is the checkpoint prefix."""

    def __init__(self, build: Build, name: str, *, bias: bool) -> None:
        config = build.config
        columns = build.partition.mlp.shard(build.rank)
        parts = {f"{name}.gate_proj": columns, f"{name}.up_proj": columns}
        self._backend = build.backend
        self._activation = silu_mul if config.activation == "silu" else gelu_tanh_mul
        self._gate_up = ColumnParallel(build, config.hidden_size, parts, bias)
        self._down = RowParallel(build, f"{name}.down_proj", columns, config.hidden_size, bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[T, hidden] to [T, hidden], summed over the ranks."""
        return self._down(self._activation(self._gate_up(x), backend=self._backend))

    def pieces(self) -> Iterator[Piece]:
        yield from self._gate_up.pieces()
        yield from self._down.pieces()
