"""What a rank's errors mean for the replica, and how it finds its device."""

from __future__ import annotations

import os

import pytest

from motley_engine.comm.shared_group import CollectiveError
from motley_engine.config.errors import ConfigError
from motley_engine.executor.memory import MemoryShortageError
from motley_engine.launch import exit_codes
from motley_engine.launch.devices import GpuMismatchError, check_uuid, threads_per_rank
from motley_engine.launch.rank import exit_code
from motley_engine.loader.errors import CheckpointError
from motley_engine.scheduler.loop import StepStalledError
from motley_planner.inventory import Card

CARD = Card("GPU-1f2e", "H200", 140_000, cuda_index=3)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), exit_codes.CONFIG_REFUSED),
        (CheckpointError("x"), exit_codes.CONFIG_REFUSED),
        (MemoryShortageError("x"), exit_codes.CONFIG_REFUSED),
        (GpuMismatchError("x"), exit_codes.GPU_MISMATCH),
        (StepStalledError("x"), exit_codes.RANK_STALLED),
        (TimeoutError("plan ring: rank 1 is 2 records behind"), exit_codes.RANK_STALLED),
        (CollectiveError("x"), exit_codes.RANK_DIED),
        (ZeroDivisionError(), exit_codes.RANK_DIED),
        (KeyboardInterrupt(), exit_codes.RANK_DIED),
    ],
)
def test_every_error_has_its_code(error: BaseException, code: int):
    assert exit_code(error) == code


def test_a_gpu_other_than_the_planned_one_is_named():
    check_uuid(CARD, 0, "1f2e")
    check_uuid(CARD, 0, "GPU-1f2e")
    with pytest.raises(GpuMismatchError, match="rank 2: CUDA device 3 is GPU-77ab, the plan names GPU-1f2e"):
        check_uuid(CARD, 2, "77ab")


def test_ranks_share_the_cores(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(7)))
    assert [threads_per_rank(world) for world in (1, 2, 3, 8)] == [7, 3, 2, 1]
