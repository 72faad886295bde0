"""What a start shows where nobody watches a terminal, and the memory table."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from motley_engine.executor.memory import MemoryRow
from motley_engine.launch.reports import Progress
from motley_engine.launch.terminal import LoadDisplay, show_memory
from motley_planner.memory import MIB


def row(rank: int, limits: bool) -> MemoryRow:
    sizes = (1000, 300, 20, 30, 40, 10, 500)
    return MemoryRow(
        rank, f"GPU-{rank} H200", *(size * MIB for size in sizes), rows=12345, left=100 * MIB, limits=limits
    )


def test_the_memory_table_marks_the_limiting_rank():
    text = io.StringIO()
    show_memory(Console(file=text, width=160), [row(0, False), row(1, True)])
    lines = text.getvalue().splitlines()
    line = next(line for line in lines if "GPU-1 H200" in line)
    cells = [cell.strip() for cell in line.replace("┃", "│").split("│")]
    assert cells[1:-1] == ["* 1", "GPU-1 H200", "1,000", "300", "20", "30", "40", "10", "500", "12,345", "100"]
    assert "--chunked-prefill-size" in text.getvalue()


def test_without_a_terminal_progress_is_lines(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO), LoadDisplay(Console(file=io.StringIO())) as display:
        for done in (1, 2, 3):
            display.update(Progress(1, "load", done * MIB, 3 * MIB))
        display.update(Progress(0, "graphs", 5, 5))
    assert caplog.messages == ["rank 1 load: 3 of 3 MiB", "rank 0 graphs: 5 of 5 graphs"]


def test_on_a_terminal_progress_is_bars(caplog: pytest.LogCaptureFixture):
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=100)
    with caplog.at_level(logging.INFO), LoadDisplay(console) as display:
        display.update(Progress(0, "load", 1 * MIB, 4 * MIB))
        display.update(Progress(0, "load", 4 * MIB, 4 * MIB))
    assert caplog.messages == []
    assert "rank 0 load" in text.getvalue()
    assert "4/4" in text.getvalue()
