"""One container as a local child process: start, prefixed logs, bounded stop."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

CHUNK = 65536
LINE_END = re.compile(rb"\r\n|\n|\r")

LineSink = Callable[[str], None]


class Container(Protocol):
    """A running container."""

    async def wait(self) -> int:
        """Exit code; negative for a signal, as the subprocess module has it."""
        ...

    def terminate(self) -> None:
        """Ask it to end: its main process gets SIGTERM."""
        ...

    def kill(self) -> None:
        """End it and everything it started."""
        ...


class ChildProcess:
    """A container as a process group of its own, so that Ctrl-C in the terminal reaches only `motley up`."""

    def __init__(self, process: asyncio.subprocess.Process, pump: asyncio.Task[None]) -> None:
        self._process = process
        self._ended = False
        self._pump = pump

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str], sink: LineSink) -> ChildProcess:
        """Run ``command``; every line it prints goes to ``sink``."""
        # a pipe of our own: with asyncio's, the process would count as running until its last descendant closes it
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "motley_operator.local.child", str(os.getpid()), *command),
                env=dict(environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                start_new_session=True,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return cls(process, asyncio.create_task(_pump(reading, sink)))

    async def wait(self) -> int:
        code = await self._process.wait()
        # processes that outlive the main one still hold the pipe; they go with their container
        self.kill()
        # from here on the group's number may belong to strangers
        self._ended = True
        await self._pump
        return code

    def terminate(self) -> None:
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        if self._ended:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


async def _pump(pipe: int, sink: LineSink) -> None:
    """Pass on lines until every writer has closed the pipe."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb"))
    pending = b""
    while chunk := await reader.read(CHUNK):
        *lines, pending = LINE_END.split(pending + chunk)
        for line in lines:
            sink(line.decode("utf-8", "replace"))
    if pending:
        sink(pending.decode("utf-8", "replace"))
    transport.close()
