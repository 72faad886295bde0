"""A rank's device and its line to the other ranks, both as the configuration says."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from motley_engine.comm.collectives import Alone, Collectives
from motley_engine.comm.distributed import DistributedCollectives
from motley_engine.comm.shared_group import SharedCollectives, SharedGroup
from motley_engine.config.resolve import Resolved
from motley_planner.inventory import Card

STORE = "store"
"""File in the private directory through which ranks of torch.distributed meet."""


class GpuMismatchError(RuntimeError):
    """The rank's device is not the card that the plan gives it."""


def open_device(resolved: Resolved, rank: int) -> torch.device:
    """``rank``'s device, made current. GpuMismatchError if CUDA shows another card there than the plan names."""
    card = resolved.cards[rank]
    if card.kind == "cpu":
        torch.set_num_threads(threads_per_rank(resolved.world))
        return torch.device("cpu")
    if card.cuda_index is None:
        raise GpuMismatchError(f"rank {rank}: CUDA does not show {card.uuid}; check CUDA_VISIBLE_DEVICES")
    device = torch.device("cuda", card.cuda_index)
    torch.cuda.set_device(device)
    check_uuid(card, rank, str(torch.cuda.get_device_properties(device).uuid))
    return device


def check_uuid(card: Card, rank: int, found: str) -> None:
    """GpuMismatchError unless ``found``, a UUID as torch or NVML writes it, is the card's."""
    if card.uuid.removeprefix("GPU-") != found.removeprefix("GPU-"):
        raise GpuMismatchError(
            f"rank {rank}: CUDA device {card.cuda_index} is GPU-{found.removeprefix('GPU-')}, the plan names "
            f"{card.uuid}; plan again on this machine"
        )


def threads_per_rank(world: int) -> int:
    """The cores this process may use, shared evenly by the ranks of one host."""
    return max(1, len(os.sched_getaffinity(0)) // world)


def connect(
    resolved: Resolved, rank: int, device: torch.device, group: SharedGroup | None, directory: Path
) -> tuple[Collectives, str]:
    """Meet the other ranks; and a line for the log that says by what."""
    runtime = resolved.config.runtime
    # ranks load at different speeds, so the first wait may be as long as a start
    timeout = max(runtime.start_timeout, runtime.watchdog_timeout)
    if resolved.world == 1:
        return Alone(), "no collectives, one rank"
    if group is not None:
        return SharedCollectives(group, rank, timeout), "collectives over shared memory"
    backend = "nccl" if device.type == "cuda" else "gloo"
    comm = DistributedCollectives.connect(backend, directory / STORE, rank, resolved.world, timeout, device)
    return comm, f"collectives over {backend}"
