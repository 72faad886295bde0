"""Collectives of ranks on one host's CPUs through shared memory: no sockets, one barrier per call.

gloo takes about 2 ms per small all-reduce between two processes of a busy two-core host; a decode step of a 30-layer
model makes 60. Here each rank writes its part into its own slot, meets the others, and reads theirs. Every rank adds
the parts in rank order, so all hold the same bits.
"""

from __future__ import annotations

import os
import time
from multiprocessing.context import SpawnContext
from multiprocessing.synchronize import Semaphore

import torch

from motley_engine.comm.shared import SharedBlock

_SPINS = 32
_ALIGN = 64


class CollectiveError(RuntimeError):
    """A peer did not take part in time; the group is unusable from here on."""


class SharedGroup:
    """What the ranks share; pass it to each as a spawn argument.

    Two slots of ``slot_bytes`` per rank: while one call's parts are read, the next call's are written.
    ``signals[i][j]`` counts the meetings that rank i has reached, for rank j to consume.
    """

    def __init__(self, context: SpawnContext, world: int, slot_bytes: int = 1 << 20) -> None:
        self.world = world
        self.slot_bytes = -(-slot_bytes // _ALIGN) * _ALIGN
        self.block = SharedBlock(2 * world * self.slot_bytes)
        self.signals: tuple[tuple[Semaphore, ...], ...] = tuple(
            tuple(context.Semaphore(0) for _ in range(world)) for _ in range(world)
        )


class SharedCollectives:
    """The collectives of one rank. A peer that does not come within ``timeout`` seconds raises CollectiveError."""

    def __init__(self, group: SharedGroup, rank: int, timeout: float) -> None:
        self.rank = rank
        self.world = group.world
        self._timeout = timeout
        self._slot_bytes = group.slot_bytes
        self._slots = torch.frombuffer(group.block.bytes(), dtype=torch.uint8).view(2, group.world, group.slot_bytes)
        self._signals = group.signals
        self._turn = 0

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        flat = x.view(-1)
        for start in range(0, flat.numel(), self._fit(x.dtype)):
            part = flat[start : start + self._fit(x.dtype)]
            slots = self._exchange(part)
            torch.add(slots[0], slots[1], out=part)
            for other in range(2, self.world):
                part += slots[other]
        return x

    def gather_columns(self, x: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor | None:
        rows = x.shape[0]
        out = x.new_empty(rows, sum(sizes)) if self.rank == 0 else None
        step = self._fit(x.dtype) // max(sizes)
        if step == 0:
            raise ValueError(f"gather: a row of {max(sizes)} columns exceeds a slot of {self._slot_bytes} bytes")
        for start in range(0, rows, step):
            count = min(step, rows - start)
            slots = self._exchange(x[start : start + count].reshape(-1), count * max(sizes))
            if out is not None:
                parts = [slots[r, : count * size].view(count, size) for r, size in enumerate(sizes)]
                torch.cat(parts, dim=1, out=out[start : start + count])
        return out

    def broadcast(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.view(-1)
        for start in range(0, flat.numel(), self._fit(x.dtype)):
            part = flat[start : start + self._fit(x.dtype)]
            slots = self._exchange(part if self.rank == 0 else part[:0], part.numel())
            if self.rank != 0:
                part.copy_(slots[0])
        return x

    def _fit(self, dtype: torch.dtype) -> int:
        return self._slot_bytes // dtype.itemsize

    def _exchange(self, mine: torch.Tensor, count: int | None = None) -> torch.Tensor:
        """Every rank's part [world, count], readable until the call after next."""
        count = mine.numel() if count is None else count
        slots = self._slots[self._turn].view(mine.dtype)[:, :count]
        slots[self.rank, : mine.numel()] = mine
        # a rank reaches the next-but-one call, which writes this turn's slots again, only after all have made the next
        # one and thus have read this turn's
        self._turn ^= 1
        for other in range(self.world):
            if other != self.rank:
                self._signals[self.rank][other].release()
        for other in range(self.world):
            if other != self.rank:
                self._meet(other)
        return slots

    def _meet(self, other: int) -> None:
        signal = self._signals[other][self.rank]
        for _ in range(_SPINS):
            if signal.acquire(False):
                return
            os.sched_yield()
        started = time.monotonic()
        if not signal.acquire(timeout=self._timeout):
            waited = time.monotonic() - started
            raise CollectiveError(f"collective: rank {self.rank} waited {waited:.1f} s for rank {other}")
