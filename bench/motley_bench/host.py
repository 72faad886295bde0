"""Runs `motley serve` as a child on a free port, awaits its own ready line, and ends it whatever happens."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

READY = re.compile(r"ready.*?(http://[0-9.]+:\d+)", re.IGNORECASE)


class Serve:
    """Use as a context manager; entered when the server is ready.

    ``url`` is its base URL, ``seconds`` the time from start to ready, ``log`` every line it printed; ``echo`` passes
    the lines on to stderr. RuntimeError with the log's end if it does not come up within ``start_timeout`` s.
    """

    def __init__(self, flags: Sequence[str], start_timeout: float = 540.0, echo: bool = True) -> None:
        self.flags = list(flags)
        self.log: list[str] = []
        self.url = ""
        self.seconds = 0.0
        self._start_timeout = start_timeout
        self._echo = echo
        self._lines: queue.Queue[str | None] = queue.Queue()

    def __enter__(self) -> Serve:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "motley", "serve", "--port", "0", *self.flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        threading.Thread(target=self._pump, daemon=True).start()
        try:
            self.url = self._await_ready(started + self._start_timeout)
        except BaseException:
            self.stop()
            raise
        self.seconds = time.monotonic() - started

    def stop(self, patience: float = 30.0) -> int | None:
        """SIGTERM, then the exit code; None if it outlived ``patience`` s and had to be killed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            return None

    def tail(self) -> str:
        """The last lines it printed."""
        return "\n".join(self.log[-60:])

    def _pump(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log.append(line.rstrip("\n"))
            if self._echo:
                print(f"| {line}", end="", file=sys.stderr, flush=True)
            self._lines.put(line)
        self._lines.put(None)

    def _await_ready(self, deadline: float) -> str:
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise RuntimeError(f"not ready in {self._start_timeout} s; last lines:\n{self.tail()}") from None
            if line is None:
                raise RuntimeError(f"ended with {self.process.wait()} before ready; last lines:\n{self.tail()}")
            if found := READY.search(line):
                return found.group(1)
