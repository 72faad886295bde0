"""The rank processes of one replica as the parent sees them: started together, awaited, ended together."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from motley_engine.comm.ring import Ring
from motley_engine.comm.shared_group import SharedGroup
from motley_engine.config.resolve import Resolved
from motley_engine.executor.wire import longest
from motley_engine.launch import exit_codes
from motley_engine.launch.board import Board
from motley_engine.launch.life import stop_signals_blocked
from motley_engine.launch.rank import RankSpec, rank_main
from motley_engine.launch.reports import Failed, Progress, Ready, Report

_KILL_SECONDS = 5.0
_LAST_WORDS_SECONDS = 0.5


class StartError(RuntimeError):
    """The replica did not become ready. ``code`` is its exit code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(slots=True)
class Rank:
    """One rank's process and the parent's end of its pipe."""

    number: int
    process: BaseProcess
    pipe: Connection
    ready: Ready | None = None

    @property
    def alive(self) -> bool:
        return self.process.is_alive()

    def last_words(self) -> Failed | None:
        """Why the rank says it ended, if it had time to say so."""
        while self.pipe.poll(_LAST_WORDS_SECONDS):
            try:
                report = self.pipe.recv()
            except EOFError:
                return None
            if isinstance(report, Failed):
                return report
        return None

    def obituary(self) -> tuple[int, str]:
        """Exit code for the replica and the reason, once the process has ended."""
        words = self.last_words()
        if words is not None:
            return words.code, f"rank {self.number}: {words.reason}"
        code = self.process.exitcode
        how = f"was killed by {_signal_name(-code)}" if code is not None and code < 0 else f"ended with code {code}"
        return exit_codes.RANK_DIED, f"rank {self.number} (process {self.process.pid}) {how}"


class RankGroup:
    """All ranks of a replica. Must be started from the main thread: ranks die with the thread that started them."""

    def __init__(self, ranks: Sequence[Rank], board: Board, links: tuple[Ring | None, SharedGroup | None]) -> None:
        self.ranks = ranks
        self.board = board
        # semaphores have names until the last reference here is dropped; ranks open them while they start
        self._links: tuple[Ring | None, SharedGroup | None] | None = links

    @classmethod
    def start(cls, resolved: Resolved, directory: Path) -> RankGroup:
        """Start every rank; ``directory`` is theirs and the parent's alone."""
        context = mp.get_context("spawn")
        world = resolved.world
        board = Board(world)
        ring = Ring(context, _ring_bytes(resolved), world - 1) if world > 1 else None
        shared = world > 1 and resolved.device == "cpu" and resolved.config.runtime.cpu_collectives == "shared"
        group = SharedGroup(context, world) if shared else None
        ranks = []
        with stop_signals_blocked():
            for number in range(world):
                mine, theirs = context.Pipe(duplex=False)
                spec = RankSpec(number, os.getpid(), resolved, directory, theirs, board, ring, group)
                process = context.Process(target=rank_main, args=(spec,), name=f"motley-rank-{number}")
                process.start()
                theirs.close()
                ranks.append(Rank(number, process, mine))
        return cls(ranks, board, (ring, group))

    def wait_ready(self, timeout: float, on_progress: Callable[[Progress], None]) -> list[Ready]:
        """All ranks' Ready reports. StartError if one fails or ``timeout`` seconds pass."""
        deadline = time.monotonic() + timeout
        while any(rank.ready is None for rank in self.ranks):
            for rank in self._heard(deadline):
                report = self._receive(rank)
                if isinstance(report, Progress):
                    on_progress(report)
                elif isinstance(report, Ready):
                    rank.ready = report
                else:
                    raise StartError(_start_code(report.code), f"rank {report.rank}: {report.reason}")
        # all have them open: without names, nothing is left behind even if every process is killed at once
        self._links = None
        return [rank.ready for rank in self.ranks if rank.ready is not None]

    def dead(self) -> Rank | None:
        """A rank whose process has ended; first one that was killed, for whose lack others may have failed."""
        ended = [rank for rank in self.ranks if not rank.alive]
        return min(ended, key=lambda rank: (rank.process.exitcode or 0) >= 0, default=None)

    def await_change(self, timeout: float) -> None:
        """Wait until a rank's process has ended, at most ``timeout`` seconds."""
        wait([rank.process.sentinel for rank in self.ranks if rank.alive], timeout)

    def join(self, timeout: float) -> bool:
        """Wait until all have ended by themselves; whether they have."""
        deadline = time.monotonic() + timeout
        for rank in self.ranks:
            rank.process.join(max(0.0, deadline - time.monotonic()))
        return not any(rank.alive for rank in self.ranks)

    def kill(self) -> None:
        """End every rank now, stopped ones too."""
        for rank in self.ranks:
            rank.process.kill()
        self.join(_KILL_SECONDS)

    def _heard(self, deadline: float) -> list[Rank]:
        """Ranks that have reported or ended."""
        waiting = {rank.pipe: rank for rank in self.ranks if rank.ready is None}
        heard = wait(list(waiting), max(0.0, deadline - time.monotonic()))
        if not heard:
            names = ", ".join(str(rank.number) for rank in waiting.values())
            raise StartError(
                exit_codes.START_FAILED, f"rank {names} not ready in time; raise --start-timeout if it needs longer"
            )
        return [waiting[pipe] for pipe in heard if isinstance(pipe, Connection)]

    @staticmethod
    def _receive(rank: Rank) -> Report:
        try:
            report: Report = rank.pipe.recv()
        except EOFError:
            rank.process.join(_KILL_SECONDS)
            _, reason = rank.obituary()
            raise StartError(exit_codes.START_FAILED, reason) from None
        return report


def _start_code(code: int) -> int:
    """Before the replica is ready, a dead or stalled rank is a failed start."""
    return exit_codes.START_FAILED if code in (exit_codes.RANK_DIED, exit_codes.RANK_STALLED) else code


def _ring_bytes(resolved: Resolved) -> int:
    """Room for two plans of the largest size that the configuration allows."""
    serving = resolved.serving
    columns = -(-resolved.context_length // serving.page_size)
    return 4 * longest(serving.max_running, serving.chunk + serving.max_running, columns)


def _signal_name(number: int) -> str:
    return signal.Signals(number).name
