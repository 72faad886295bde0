"""Who counts as silent, and what a board shows."""

from __future__ import annotations

import numpy as np

from motley_engine.launch.board import Board
from motley_engine.launch.supervisor import Silence


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
