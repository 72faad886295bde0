"""Matrix products with one dimension cut over the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F

from motley_engine.layers.build import Build
from motley_engine.loader.checkpoint import Piece
from motley_planner.partition import Shard


class ColumnParallel:
    """Output features cut, inputs whole: no collective. Several projections of one input share one matrix.

    ``parts`` maps each projection's checkpoint name (without ``.weight``) to this rank's output features; the product
    holds them side by side in that order.
    """

    def __init__(self, build: Build, inputs: int, parts: Mapping[str, Shard], bias: bool) -> None:
        self.sizes = [shard.size for shard in parts.values()]
        self._parts = dict(parts)
        self._weight = build.empty(sum(self.sizes), inputs)
        self._bias = build.empty(sum(self.sizes)) if bias else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[T, inputs] to [T, sum(sizes)]."""
        return F.linear(x, self._weight, self._bias)

    def pieces(self) -> Iterator[Piece]:
        first = 0
        for name, shard in self._parts.items():
            rows = slice(first, first + shard.size)
            first += shard.size
            if shard.size == 0:
                continue
            yield Piece(f"{name}.weight", self._weight[rows], 0, shard.start, shard.stop)
            if self._bias is not None:
                yield Piece(f"{name}.bias", self._bias[rows], 0, shard.start, shard.stop)


class RowParallel:
    """Input features cut as the layer before left them; partial products are summed over the ranks.

    The bias is held whole and added once, after the sum.
    """

    def __init__(self, build: Build, name: str, inputs: Shard, outputs: int, bias: bool) -> None:
        self._name = name
        self._inputs = inputs
        self._comm = build.comm
        self._weight = build.empty(outputs, inputs.size)
        self._bias = build.empty(outputs) if bias else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[T, inputs.size] to [T, outputs], the same on every rank."""
        y = self._comm.all_reduce(F.linear(x, self._weight))
        return y if self._bias is None else y.add_(self._bias)

    def pieces(self) -> Iterator[Piece]:
        if self._inputs.size:
            yield Piece(f"{self._name}.weight", self._weight, 1, self._inputs.start, self._inputs.stop)
        if self._bias is not None:
            yield Piece(f"{self._name}.bias", self._bias)
