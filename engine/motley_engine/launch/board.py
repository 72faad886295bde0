"""Signs of life in shared memory: every rank writes its own line, the supervisor reads them all."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from motley_engine.comm.shared import SharedBlock

BEAT_SECONDS = 0.5
_LINE = 8
_BEATS, _STARTED, _FINISHED = range(3)


class Board:
    """One cache line of int64 per rank: beats so far, and the last steps started and finished (-1 = none)."""

    def __init__(self, world: int) -> None:
        self.world = world
        self.block = SharedBlock(world * _LINE * 8)
        self._lines()[:, (_STARTED, _FINISHED)] = -1

    def beats(self, rank: int) -> int:
        return int(self._lines()[rank, _BEATS])

    def steps(self, rank: int) -> tuple[int, int]:
        """Sequence numbers of the steps that ``rank`` started and finished last."""
        line = self._lines()[rank]
        return int(line[_STARTED]), int(line[_FINISHED])

    def pulse(self, rank: int) -> Pulse:
        """``rank``'s hand on its own line."""
        return Pulse(self._lines()[rank])

    def _lines(self) -> npt.NDArray[Any]:
        return self.block.array(np.int64, self.world * _LINE).reshape(self.world, _LINE)


class Pulse:
    """Beats from a thread of its own: a process that is stopped, or whose interpreter is stuck, falls silent."""

    def __init__(self, line: npt.NDArray[Any]) -> None:
        self._line = line
        self._over = threading.Event()

    def start(self, parent: int) -> None:
        """Beat until ``stop``. The process also ends when it is no longer a child of ``parent``."""
        threading.Thread(target=self._beat, args=(parent,), name="pulse", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def mark(self, seq: int, done: bool) -> None:
        """Note the start or end of step ``seq``."""
        self._line[_FINISHED if done else _STARTED] = seq

    def _beat(self, parent: int) -> None:
        while not self._over.wait(BEAT_SECONDS):
            self._line[_BEATS] += 1
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)
