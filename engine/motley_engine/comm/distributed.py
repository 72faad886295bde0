"""Collectives over torch.distributed: NCCL between GPUs, gloo between processes. Static shapes suit CUDA graphs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


class DistributedCollectives:
    """The collectives of one rank over the process group that ``connect`` made."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank = rank
        self.world = world

    @classmethod
    def connect(
        cls, backend: str, store: Path, rank: int, world: int, timeout: float, device: torch.device
    ) -> DistributedCollectives:
        """Meet the other ranks through the file ``store`` (no port, so nothing to collide with).

        ``timeout`` in seconds bounds the meeting and every gloo call; a hung NCCL call is the watchdog's matter.
        RuntimeError if the ranks do not meet.
        """
        dist.init_process_group(
            backend,
            init_method=f"file://{store}",
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=timeout),
            device_id=device if device.type == "cuda" else None,
        )
        return cls(rank, world)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    def gather_columns(self, x: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor | None:
        # padded to the widest rank: one collective of equal parts, which every backend has and a graph can hold
        padded = x.new_zeros(x.shape[0], max(sizes))
        padded[:, : x.shape[1]] = x
        parts = x.new_empty(self.world * x.shape[0], max(sizes))
        dist.all_gather_into_tensor(parts, padded)
        if self.rank != 0:
            return None
        by_rank = parts.view(self.world, x.shape[0], max(sizes))
        return torch.cat([by_rank[r, :, :size] for r, size in enumerate(sizes)], dim=1)

    def broadcast(self, x: torch.Tensor) -> torch.Tensor:
        dist.broadcast(x, src=0)
        return x

    def close(self) -> None:
        """Leave the group; the others must do the same."""
        dist.destroy_process_group()
