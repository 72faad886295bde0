"""Who counts as silent, what a board shows, and that a fault is told once."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
import pytest

from motley_engine.launch.board import Board
from motley_engine.launch.supervisor import Fault, Silence, Supervisor

BOUND = 30.0


def test_a_rank_is_stalled_once_it_is_silent_for_longer_than_the_limit():
    silence = Silence(2, limit=5.0, now=0.0)
    found = {now: silence.stalled([round(4 * now), min(round(4 * now), 3)], now) for now in np.arange(0.25, 7, 0.25)}
    assert [now for now, stalled in found.items() if stalled] == [6.0, 6.25, 6.5, 6.75]
    assert found[6.0] == [1]


def test_a_rank_that_never_beats_is_stalled():
    silence = Silence(1, limit=2.0, now=10.0)
    ticks = [10.0 + 0.25 * tick for tick in range(1, 12)]
    assert [now for now in ticks if silence.stalled([0], now)] == [12.5, 12.75]


def test_a_pause_of_the_watcher_itself_blames_nobody():
    """The machine slept for a minute between two looks: ranks get their full limit again."""
    silence = Silence(1, limit=5.0, now=0.0)
    assert silence.stalled([1], 0.25) == []
    assert silence.stalled([1], 60.0) == []
    assert silence.stalled([1], 64.0) == []
    assert silence.stalled([2], 64.25) == []
    assert silence.stalled([2], 70.0) == []


def test_the_board_keeps_every_ranks_line_apart():
    board = Board(3)
    pulses = [board.pulse(rank) for rank in range(3)]
    assert board.steps(1) == (-1, -1)
    pulses[1].mark(7, done=False)
    pulses[2].mark(8, done=False)
    pulses[2].mark(8, done=True)
    assert [board.steps(rank) for rank in range(3)] == [(-1, -1), (7, -1), (8, 8)]
    assert [board.beats(rank) for rank in range(3)] == [0, 0, 0]


@dataclass
class FakeProcess:
    pid: int


@dataclass
class FakeRank:
    process: FakeProcess

    def obituary(self) -> tuple[int, str]:
        return 70, "rank 0 died"


@dataclass
class FakeGroup:
    """Two ranks that never beat; ``dead`` tells when rank 0 has died."""

    board: Board = field(default_factory=lambda: Board(2))
    ranks: tuple[FakeRank, ...] = (FakeRank(FakeProcess(11)), FakeRank(FakeProcess(12)))
    died: threading.Event = field(default_factory=threading.Event)
    killed: threading.Event = field(default_factory=threading.Event)

    def await_change(self, timeout: float) -> None:
        self.died.wait(timeout)

    def dead(self) -> FakeRank | None:
        return self.ranks[0] if self.died.is_set() else None

    def kill(self) -> None:
        self.killed.set()


def supervised(group: FakeGroup, limit: float) -> tuple[Supervisor, list[Fault]]:
    faults: list[Fault] = []
    supervisor = Supervisor(group, limit, faults.append, force=lambda fault: None)
    supervisor.start()
    return supervisor, faults


def test_a_dead_rank_is_told_once_and_the_others_are_killed():
    group = FakeGroup()
    supervisor, faults = supervised(group, limit=1000)
    group.died.set()
    assert group.killed.wait(BOUND)
    supervisor.report(Fault(71, "too late"))
    assert faults == [Fault(70, "rank 0 died")]


def test_silent_ranks_are_named_with_their_steps():
    group = FakeGroup()
    group.board.pulse(1).mark(4, done=False)
    _, faults = supervised(group, limit=0.3)
    assert group.killed.wait(BOUND)
    assert faults[0].code == 71
    assert "rank 0 (process 11), 1 (process 12) has been silent for 0.3 s" in faults[0].reason
    assert "rank 1 in step 4" in faults[0].reason


def test_ranks_may_end_once_the_supervisor_has_stood_down():
    group = FakeGroup()
    supervisor, faults = supervised(group, limit=1000)
    supervisor.stand_down()
    group.died.set()
    supervisor.report(Fault(70, "expected"))
    assert faults == []
    assert not group.killed.is_set()


def test_a_server_that_does_not_leave_is_ended_by_force(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("motley_engine.launch.supervisor.GRACE_SECONDS", 0.01)
    forced: list[Fault] = []
    left = threading.Event()

    def force(fault: Fault) -> None:
        forced.append(fault)
        left.set()

    Supervisor(FakeGroup(), 1000, lambda fault: None, force).report(Fault(71, "stuck"))
    assert left.wait(BOUND)
    assert forced == [Fault(71, "stuck")]
