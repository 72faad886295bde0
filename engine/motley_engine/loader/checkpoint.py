"""The line between models and checkpoint formats: a model lists pieces, a reader fills them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class Piece:
    """A slice of one checkpoint tensor and the parameter view that takes it.

    ``name`` is the Hugging Face tensor name. ``dim`` None takes the tensor whole; otherwise [start, stop) along
    ``dim``.
    ``into`` has exactly the slice's shape; the loader converts the dtype.
    """

    name: str
    into: torch.Tensor
    dim: int | None = None
    start: int = 0
    stop: int = 0


class CheckpointReader(Protocol):
    """Reads slices of a checkpoint under Hugging Face names and conventions, whatever the format on disk."""

    def names(self) -> frozenset[str]:
        """Every tensor present."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the whole tensor. KeyError if absent."""
        ...

    def read(self, name: str, dim: int | None, start: int, stop: int, device: torch.device) -> torch.Tensor:
        """The slice as a floating tensor on ``device``, reading from disk no more than its blocks need."""
        ...
