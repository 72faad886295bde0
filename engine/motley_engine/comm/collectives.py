"""Collectives between the ranks of one replica; the backend is picked once, at start."""

from __future__ import annotations

from typing import Protocol

import torch


class Collectives(Protocol):
    """What layers and executors need. Every call is made by all ranks in the same order. Sizes come from the plan."""

    rank: int
    world: int

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """Sum over ranks; may work in place and returns the result."""
        ...

    def gather_columns(self, x: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor | None:
        """Concatenate [N, sizes[r]] of all ranks along dim 1 on rank 0; None elsewhere."""
        ...

    def broadcast(self, x: torch.Tensor) -> torch.Tensor:
        """Rank 0's values on every rank, in place."""
        ...


class Alone:
    """The collectives of a single rank."""

    rank = 0
    world = 1

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def gather_columns(self, x: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor | None:
        return x

    def broadcast(self, x: torch.Tensor) -> torch.Tensor:
        return x
