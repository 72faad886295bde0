"""The life of one rank's process: bind to the parent, build, report, serve, and end with a reason.

Everything it needs arrives in one ``RankSpec``; it reads no flags and no environment.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from motley_engine.comm.mailbox import Mailbox
from motley_engine.comm.ring import Ring, RingReader, RingWriter
from motley_engine.comm.shared_group import SharedGroup
from motley_engine.config.errors import ConfigError
from motley_engine.config.resolve import Resolved
from motley_engine.executor.build import RankEngine, build_rank
from motley_engine.executor.follower import follow
from motley_engine.executor.memory import MemoryShortageError
from motley_engine.executor.runner import CpuLauncher, CudaLauncher, LocalRunner
from motley_engine.launch import exit_codes, logs
from motley_engine.launch.board import Board, Pulse
from motley_engine.launch.devices import GpuMismatchError, connect, open_device
from motley_engine.launch.life import bind_to_parent
from motley_engine.launch.reports import Failed, Progress, Ready
from motley_engine.loader.errors import CheckpointError
from motley_engine.scheduler.loop import Scheduler, StepStalledError

log = logging.getLogger(__name__)

_PROGRESS_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class RankSpec:
    """What one rank is told. ``ring`` and ``group`` are None in a replica of one rank, ``group`` also on CUDA."""

    rank: int
    parent: int
    resolved: Resolved
    directory: Path
    pipe: Connection
    board: Board
    ring: Ring | None
    group: SharedGroup | None


def rank_main(spec: RankSpec) -> None:
    """Entry point of a rank's process; ends it with one of ``exit_codes``."""
    bind_to_parent(spec.parent)
    faulthandler.enable()
    logs.set_up(spec.resolved.config.runtime.log_level, f"rank {spec.rank}")
    pulse = spec.board.pulse(spec.rank)
    pulse.start(spec.parent)
    code = exit_codes.OK
    try:
        _live(spec, pulse)
    except BaseException as error:
        code = exit_code(error)
        log.log(logging.ERROR if code == exit_codes.RANK_DIED else logging.DEBUG, "ended by an error", exc_info=True)
        spec.pipe.send(Failed(spec.rank, code, str(error) or type(error).__name__))
    logging.shutdown()
    # no interpreter shutdown: threads of torch that wait for a lost peer would keep the process
    os._exit(code)


def exit_code(error: BaseException) -> int:
    """What ``error`` means for the replica."""
    if isinstance(error, (ConfigError, CheckpointError, MemoryShortageError)):
        return exit_codes.CONFIG_REFUSED
    if isinstance(error, GpuMismatchError):
        return exit_codes.GPU_MISMATCH
    if isinstance(error, (StepStalledError, TimeoutError)):
        return exit_codes.RANK_STALLED
    return exit_codes.RANK_DIED


def _live(spec: RankSpec, pulse: Pulse) -> None:
    device = open_device(spec.resolved, spec.rank)
    comm, note = connect(spec.resolved, spec.rank, device, spec.group, spec.directory)
    engine = build_rank(spec.resolved, spec.rank, comm, device, _progress(spec))
    serve = _lead if spec.rank == 0 else _follow
    serve(spec, engine, pulse, (note, f"{torch.get_num_threads()} threads on {device}"))


def _lead(spec: RankSpec, engine: RankEngine, pulse: Pulse, notes: tuple[str, ...]) -> None:
    """Rank 0: schedule, and run this rank's share of every step."""
    config = spec.resolved.config
    device = engine.worker.device
    launcher = CpuLauncher() if device.type == "cpu" else CudaLauncher(device)
    writer = None if spec.ring is None else RingWriter(spec.ring)
    runner = LocalRunner(engine.worker, launcher, writer, config.runtime.watchdog_timeout, pulse.mark)
    mailbox = Mailbox(spec.directory)
    # "whole prompts" is bounded by the longest one: what a step needs at most was measured for that
    limits = config.scheduler.model_copy(update={"chunked_prefill_size": spec.resolved.serving.chunk})
    scheduler = Scheduler(
        limits,
        engine.geometry,
        runner,
        mailbox,
        time.monotonic,
        config.runtime.watchdog_timeout,
        config.model.random_seed,
    )
    _report(spec, engine, notes)
    scheduler.run()
    runner.close()
    mailbox.close()


def _follow(spec: RankSpec, engine: RankEngine, pulse: Pulse, notes: tuple[str, ...]) -> None:
    """Every other rank: run what the plan ring brings."""
    assert spec.ring is not None, "ranks beyond the first have a plan ring"
    reader = RingReader(spec.ring, spec.rank - 1)
    _report(spec, engine, notes)
    follow(reader, engine.worker, pulse.mark)


def _report(spec: RankSpec, engine: RankEngine, notes: tuple[str, ...]) -> None:
    spec.pipe.send(Ready(spec.rank, os.getpid(), engine.row, engine.geometry, notes))


def _progress(spec: RankSpec) -> Callable[[str, int, int], None]:
    """Reports to the parent, a few times per second at most; the end of a stage always."""
    told = 0.0

    def tell(stage: str, done: int, total: int) -> None:
        nonlocal told
        now = time.monotonic()
        if done == total or now - told >= _PROGRESS_SECONDS:
            told = now
            spec.pipe.send(Progress(spec.rank, stage, done, total))

    return tell
