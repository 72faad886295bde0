"""Watches the ranks from a thread of its own, so that a busy event loop cannot hide a dead or silent rank."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from motley_engine.launch import exit_codes
from motley_engine.launch.board import BEAT_SECONDS
from motley_engine.launch.group import RankGroup

log = logging.getLogger(__name__)

_TICK_SECONDS = 0.25
GRACE_SECONDS = 4.0
"""After a fault: time for the parent to tell every client and leave by itself."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the replica ends, and with which code."""

    code: int
    reason: str


class Silence:
    """Who has not been heard for how long. Time during which the watcher itself did not run is nobody's fault."""

    def __init__(self, ranks: int, limit: float, now: float) -> None:
        self._limit = limit
        self._beats = [-1] * ranks
        self._heard = [now] * ranks
        self._looked = now

    def stalled(self, beats: list[int], now: float) -> list[int]:
        """Ranks silent for longer than the limit, given every rank's count of beats at time ``now``."""
        pause = max(0.0, now - self._looked - BEAT_SECONDS)
        self._looked = now
        self._heard = [heard + pause for heard in self._heard]
        for rank, count in enumerate(beats):
            if count != self._beats[rank]:
                self._beats[rank], self._heard[rank] = count, now
        return [rank for rank, heard in enumerate(self._heard) if now - heard > self._limit]


def end_by_force(fault: Fault) -> None:
    """Leave this process at once, whatever its threads do."""
    log.error("the server did not end in time and is ended by force")
    logging.shutdown()
    os._exit(fault.code)


class Supervisor:
    """Calls ``on_fault`` once, from its thread, and kills the ranks. If the process has not left ``GRACE_SECONDS``
    later, ``force`` ends it."""

    def __init__(
        self,
        group: RankGroup,
        heartbeat_timeout: float,
        on_fault: Callable[[Fault], None],
        force: Callable[[Fault], None] = end_by_force,
    ) -> None:
        self._group = group
        self._timeout = heartbeat_timeout
        self._on_fault = on_fault
        self._force = force
        self._over = threading.Event()
        self._reported = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="supervisor", daemon=True).start()

    def stand_down(self) -> None:
        """The ranks are about to end on purpose."""
        self._over.set()

    def report(self, fault: Fault) -> None:
        """End the replica for ``fault``; the first one counts."""
        if self._over.is_set() or not self._reported.acquire(blocking=False):
            return
        self._over.set()
        log.error("the replica ends with code %d: %s", fault.code, fault.reason)
        leave = threading.Timer(GRACE_SECONDS, self._force, (fault,))
        leave.daemon = True
        leave.start()
        self._on_fault(fault)
        self._group.kill()

    def _watch(self) -> None:
        board = self._group.board
        silence = Silence(board.world, self._timeout, time.monotonic())
        while not self._over.is_set():
            self._group.await_change(_TICK_SECONDS)
            if (dead := self._group.dead()) is not None:
                self.report(Fault(*dead.obituary()))
                return
            beats = [board.beats(rank) for rank in range(board.world)]
            if stalled := silence.stalled(beats, time.monotonic()):
                self.report(Fault(exit_codes.RANK_STALLED, self._describe(stalled)))

    def _describe(self, stalled: list[int]) -> str:
        steps = []
        for rank in range(self._group.board.world):
            started, finished = self._group.board.steps(rank)
            steps.append(f"rank {rank} {'in step ' if started != finished else 'after step '}{started}")
        names = ", ".join(f"{rank} (process {self._group.ranks[rank].process.pid})" for rank in stalled)
        return f"rank {names} has been silent for {self._timeout:g} s (--heartbeat-timeout); {', '.join(steps)}"
