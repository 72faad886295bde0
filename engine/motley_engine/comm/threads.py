"""Collectives of ranks that are threads of one process: tests and tools that compare shards without spawning any."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from motley_engine.comm.collectives import Collectives

T = TypeVar("T")


class _Meeting:
    def __init__(self, world: int, timeout: float) -> None:
        self.barrier = threading.Barrier(world, timeout=timeout)
        self.parts: list[torch.Tensor | None] = [None] * world

    def exchange(self, rank: int, part: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's part, copied, in rank order. BrokenBarrierError if a rank does not come in time."""
        self.parts[rank] = part
        self.barrier.wait()
        copies = [other.clone() for other in self.parts if other is not None]
        self.barrier.wait()
        return copies


class ThreadCollectives:
    """One rank's hand on the meeting; made by ``run_ranks``."""

    def __init__(self, meeting: _Meeting, rank: int, world: int) -> None:
        self.rank = rank
        self.world = world
        self._meeting = meeting

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        total, *others = self._meeting.exchange(self.rank, x)
        for part in others:
            total += part
        return total

    def gather_columns(self, x: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor | None:
        parts = self._meeting.exchange(self.rank, x)
        if tuple(part.shape[1] for part in parts) != sizes:
            raise ValueError(f"gather_columns: widths {[part.shape[1] for part in parts]}, the plan says {sizes}")
        return torch.cat(parts, dim=1) if self.rank == 0 else None

    def broadcast(self, x: torch.Tensor) -> torch.Tensor:
        return x.copy_(self._meeting.exchange(self.rank, x)[0])


def run_ranks(world: int, work: Callable[[Collectives], T], timeout: float = 60.0) -> list[T]:
    """``work`` on every rank at once, results in rank order. A rank that fails ends the others; its error is raised.

    ``timeout`` seconds bound each wait for the other ranks.
    """
    meeting = _Meeting(world, timeout)

    def guarded(rank: int) -> T:
        try:
            return work(ThreadCollectives(meeting, rank, world))
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(world) as pool:
        futures = [pool.submit(guarded, rank) for rank in range(world)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return [future.result() for future in futures]
