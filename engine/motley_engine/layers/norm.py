"""RMS normalisation with a weight that every rank holds whole."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from motley_engine.layers.build import Build
from motley_engine.loader.checkpoint import Piece
from motley_kernels.rms_norm import add_rms_norm, rms_norm


class RMSNorm:
    """Normalises the last dimension of ``size`` features; ``name`` is the checkpoint's, without ``.weight``."""

    def __init__(self, build: Build, name: str, size: int) -> None:
        self._name = name
        self._eps = build.config.norm_eps
        self._offset = 1.0 if build.config.unit_offset_norm else 0.0
        self._backend = build.backend
        self._weight = build.empty(size)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self._weight, self._eps, offset=self._offset, backend=self._backend)

    def add(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Add ``x`` to ``residual`` in place and normalise the sum."""
        return add_rms_norm(x, residual, self._weight, self._eps, offset=self._offset, backend=self._backend)

    def pieces(self) -> Iterator[Piece]:
        yield Piece(f"{self._name}.weight", self._weight)
