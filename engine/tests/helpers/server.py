"""A real `motley serve` as a child process for tests: started on a free port, awaited by its own ready line."""

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
from types import TracebackType

import httpx

READY = re.compile(r"ready.*?(http://[0-9.]+:\d+)", re.IGNORECASE)


class Server:
    """Use as a context manager. ``log`` keeps every line; a start that fails raises with its end."""

    def __init__(self, flags: Sequence[str], start_timeout: float = 240.0) -> None:
        self.flags = list(flags)
        self.start_timeout = start_timeout
        self.log: list[str] = []
        self.url = ""
        self._lines: queue.Queue[str | None] = queue.Queue()

    def __enter__(self) -> Server:
        command = [sys.executable, "-m", "motley", "serve", "--port", "0", *self.flags]
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, start_new_session=True
        )
        threading.Thread(target=self._pump, daemon=True).start()
        self._await_ready()
        self.http = httpx.Client(base_url=self.url, timeout=600)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()
        self.stop()

    def stop(self, timeout: float = 30.0) -> int:
        """SIGTERM, then the exit code; a server that outlives ``timeout`` is killed and fails the test."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise AssertionError("server did not stop on SIGTERM:\n" + self.tail()) from None

    def tail(self) -> str:
        return "\n".join(self.log[-60:])

    def rank_pids(self) -> list[int]:
        """Process ids in rank order, as /get_server_info tells them."""
        ranks = self.http.get("/get_server_info").json()["ranks"]
        return [int(rank["pid"]) for rank in ranks]

    def _pump(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log.append(line.rstrip("\n"))
            self._lines.put(line)
        self._lines.put(None)

    def _await_ready(self) -> None:
        deadline = time.monotonic() + self.start_timeout
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                os.killpg(self.process.pid, signal.SIGKILL)
                raise AssertionError(f"server not ready in {self.start_timeout} s:\n{self.tail()}") from None
            if line is None:
                raise AssertionError(f"server ended with {self.process.wait()} before it was ready:\n{self.tail()}")
            if found := READY.search(line):
                self.url = found.group(1)
                return
