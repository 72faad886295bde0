"""What a person sees of a start: the plan, progress bars or lines while weights load, the memory table, the URL."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from motley_engine.config.resolve import Resolved
from motley_engine.executor.memory import MemoryRow
from motley_engine.launch.reports import Progress as Report
from motley_planner.memory import MIB
from motley_planner.table import plan_table, summary

log = logging.getLogger(__name__)

_LINE_SECONDS = 5.0
_COLUMNS = ("budget", "weights", "graphs", "peak", "work", "state", "kv_pool", "rows", "left")
_CURES = (
    "what moves them: budget --rank-gpu-memory-mib, weights --rank-tp-ratio, graphs --cuda-graph-max-bs, "
    "peak --chunked-prefill-size, state --max-running-requests, kv-pool --max-total-tokens"
)


def show_plan(console: Console, resolved: Resolved) -> None:
    """The plan made here as a table; a given one in a line, since whoever made it has shown it."""
    given = bool(resolved.config.parallel.plan)
    console.print(summary(resolved.plan) if given else plan_table(resolved.plan), soft_wrap=given)


def show_memory(console: Console, rows: Sequence[MemoryRow]) -> None:
    """One line per rank in MiB; * marks who limits the pool, the caption names the flags that move a column."""
    title = "memory in MiB; rows: tokens that the rank alone could hold; *: limits the pool"
    table = Table(title=title, title_justify="left", caption=_CURES, caption_justify="left")
    table.add_column("rank", justify="right")
    table.add_column("card")
    for name in _COLUMNS:
        table.add_column(name.replace("_", "-"), justify="right")
    for row in rows:
        cells = row.in_mib()
        mark = "* " if row.limits and len(rows) > 1 else ""
        table.add_row(f"{mark}{row.rank}", row.card, *(f"{cells[name]:,}" for name in _COLUMNS))
    console.print(table)


class LoadDisplay:
    """Progress of all ranks: bars on a terminal, a line every few seconds elsewhere. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._bars = (
            Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[unit]}"),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            )
            if console.is_terminal
            else None
        )
        self._tasks: dict[tuple[int, str], TaskID] = {}
        self._told: dict[tuple[int, str], float] = {}

    def __enter__(self) -> LoadDisplay:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def update(self, report: Report) -> None:
        scale, unit = (MIB, "MiB") if report.stage == "load" else (1, "graphs")
        done, total = report.done // scale, report.total // scale
        if self._bars is None:
            self._line(report, f"{done} of {total} {unit}")
            return
        key = (report.rank, report.stage)
        if key not in self._tasks:
            self._tasks[key] = self._bars.add_task(f"rank {report.rank} {report.stage}", unit=unit)
        self._bars.update(self._tasks[key], completed=done, total=total)

    def _line(self, report: Report, text: str) -> None:
        key, now = (report.rank, report.stage), time.monotonic()
        if report.done == report.total or now - self._told.setdefault(key, now) >= _LINE_SECONDS:
            self._told[key] = now
            log.info("rank %d %s: %s", report.rank, report.stage, text)
