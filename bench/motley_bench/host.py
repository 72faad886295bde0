"""Runs `motley serve` as a child for a benchmark, and ends it whatever happens."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence

READY = re.compile(r"ready.*?(http://[0-9.]+:\d+)", re.IGNORECASE)


@contextlib.contextmanager
def serving(flags: Sequence[str], start_timeout: float = 540.0, quiet: bool = False) -> Iterator[tuple[str, float]]:
    """Yield (base URL, seconds from start to ready). RuntimeError with the log's end if it does not come up."""
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "motley", "serve", "--port", "0", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_pump, args=(process, lines, quiet), daemon=True).start()
    try:
        yield _await_ready(lines, started + start_timeout), time.monotonic() - started
    finally:
        _stop(process)


def _pump(process: subprocess.Popen[str], lines: queue.Queue[str | None], quiet: bool) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if not quiet:
            print(f"| {line}", end="", file=sys.stderr, flush=True)
        lines.put(line)
    lines.put(None)


def _await_ready(lines: queue.Queue[str | None], deadline: float) -> str:
    seen: list[str] = []
    while True:
        try:
            line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise RuntimeError("the server was not ready in time; its last lines:\n" + "".join(seen[-20:])) from None
        if line is None:
            raise RuntimeError("the server ended before it was ready; its last lines:\n" + "".join(seen[-20:]))
        seen.append(line)
        if found := READY.search(line):
            return found.group(1)


def _stop(process: subprocess.Popen[str], patience: float = 20.0) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
