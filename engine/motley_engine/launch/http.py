"""The HTTP server's life inside the parent: serve until a signal or a fault, drain or fail, leave in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import uvicorn

from motley_engine.config.errors import ConfigError
from motley_engine.launch import exit_codes
from motley_engine.launch.group import RankGroup, StartError
from motley_engine.launch.supervisor import Fault, Supervisor
from motley_engine.server.app import build_app
from motley_engine.server.errors import ApiError
from motley_engine.server.state import ServerState

log = logging.getLogger(__name__)

FLUSH_SECONDS = 1.5
"""After a fault: time for error answers to reach their clients."""
_RANKS_END_SECONDS = 5.0
_MEET_SECONDS = 10.0
_CHECK_SECONDS = 0.25
_POLL_SECONDS = 0.02


def bind(host: str, port: int) -> socket.socket:
    """The server's socket, bound but not listening: clients are refused, not left hanging, until there is an answer.

    ConfigError if the address cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise ConfigError(f"--host, --port: cannot bind {host}:{port}: {error}; choose another, or port 0") from error
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[Fault], None], fault: Fault) -> None:
    loop.call_soon_threadsafe(call, fault)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: stopping is decided here."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(slots=True)
class _Wishes:
    """What was asked of the running server: stop (once, twice) by signals, or end for a fault."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)
    signals: int = 0
    fault: Fault | None = None


def _unasked(wishes: _Wishes) -> Fault:
    """Why a server without a fault ends undrained."""
    if wishes.signals:
        return Fault(exit_codes.INTERRUPTED, "a second signal came before the drain was over")
    return Fault(exit_codes.START_FAILED, "the HTTP server ended by itself; see its log lines above")


class HttpLife:
    """Serves ``state`` on ``listener`` while ``group`` computes. ``run`` returns the replica's exit code."""

    def __init__(self, state: ServerState, listener: socket.socket, group: RankGroup) -> None:
        self._state = state
        self._listener = listener
        self._group = group
        self._timeout = state.config.runtime.heartbeat_timeout

    async def run(self, on_ready: Callable[[], None]) -> int:
        """``on_ready`` is called once requests are answered."""
        loop = asyncio.get_running_loop()
        wishes = _Wishes()

        def fail(fault: Fault) -> None:
            wishes.fault = fault
            wishes.changed.set()

        def stop() -> None:
            wishes.signals += 1
            wishes.changed.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        supervisor = Supervisor(self._group, self._timeout, partial(_call_in, loop, fail))
        supervisor.start()
        server = _Server(uvicorn.Config(build_app(self._state), log_config=None, lifespan="on", access_log=False))
        serving = asyncio.create_task(server.serve(sockets=[self._listener]))
        watching = asyncio.create_task(self._watch_scheduler(supervisor))
        try:
            await self._until(lambda: server.started or serving.done() or wishes.changed.is_set())
            if server.started:
                await self._meet()
                self._state.ready()
                on_ready()
            waiting = asyncio.create_task(wishes.changed.wait())
            await asyncio.wait((waiting, serving), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            return await self._end(wishes, supervisor, server)
        finally:
            watching.cancel()
            server.should_exit = True
            _, open_still = await asyncio.wait((serving,), timeout=FLUSH_SECONDS)
            server.force_exit = True
            await asyncio.gather(*open_still, return_exceptions=True)

    async def _meet(self) -> None:
        """Hear from the scheduler once: the line works both ways. StartError if it does not."""
        try:
            await self._state.client.inspect(_MEET_SECONDS)
        except ApiError as error:
            raise StartError(exit_codes.START_FAILED, f"rank 0: {error}") from error

    async def _end(self, wishes: _Wishes, supervisor: Supervisor, server: _Server) -> int:
        if wishes.fault is None and wishes.signals:
            draining = asyncio.create_task(self._drain(supervisor))
            await self._until(lambda: draining.done() or wishes.signals > 1 or wishes.fault is not None)
            if draining.done() and wishes.fault is None:
                return exit_codes.OK
            draining.cancel()
        fault = wishes.fault
        if fault is None:
            supervisor.stand_down()
            fault = _unasked(wishes)
            log.error("the replica ends with code %d: %s", fault.code, fault.reason)
        self._state.fail(fault.reason)
        # uvicorn's set of requests in progress
        await self._until(lambda: not server.server_state.tasks, FLUSH_SECONDS)
        return fault.code

    async def _drain(self, supervisor: Supervisor) -> None:
        """Let open requests end, then the ranks."""
        timeout = self._state.config.server.drain_timeout
        log.info("draining: %d requests open, at most %g s", self._state.client.open_requests, timeout)
        if not await self._state.drain(timeout):
            log.warning("drain: requests still open after %g s were aborted (--drain-timeout)", timeout)
        supervisor.stand_down()
        self._state.client.shutdown()
        if not await asyncio.to_thread(self._group.join, _RANKS_END_SECONDS):
            log.warning("ranks did not end by themselves within %g s and are killed", _RANKS_END_SECONDS)
            self._group.kill()

    async def _watch_scheduler(self, supervisor: Supervisor) -> None:
        """The client notices when the scheduler says nothing while requests are open."""
        while self._state.client.failure is None:
            await asyncio.sleep(_CHECK_SECONDS)
        reason = self._state.client.failure
        await asyncio.to_thread(supervisor.report, Fault(exit_codes.RANK_STALLED, f"rank 0: {reason}"))

    @staticmethod
    async def _until(condition: Callable[[], bool], timeout: float | None = None) -> None:
        """Poll ``condition``; returns when it holds or after ``timeout`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not condition():
                    await asyncio.sleep(_POLL_SECONDS)
