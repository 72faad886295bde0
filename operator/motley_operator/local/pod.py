"""The life of one local pod: start, wait until it is ready, watch it, start it again, take it down.

Knows nothing of manifests or processes: it is given a way to start the container and a way to look at it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from motley_operator.exit_codes import describe
from motley_operator.local.clock import Clock
from motley_operator.local.probe import Finding, Probe
from motley_operator.local.process import Container
from motley_operator.local.restarts import Life, Restart, RestartBook

PROGRESS_SECONDS = 10.0
START_POLL_SECONDS = 0.5
"""A person is waiting, so a start is looked at more often than its probe asks; its budget stays the same."""


@dataclass(frozen=True, slots=True)
class PodTiming:
    """Probes and stop time of a pod, as its manifest has them."""

    startup: Probe
    liveness: Probe
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class PodEnd:
    """How a pod ended for good: the exit code to pass on and the reason in a sentence."""

    exit_code: int
    reason: str


class PodEvents(Protocol):
    """What the terminal is told."""

    def waiting(self, seconds: float, seen: str) -> None: ...

    def ready(self, seconds: float) -> None: ...

    def unready(self, seen: str) -> None: ...

    def restarting(self, life: Life, restart: Restart) -> None: ...

    def stopping(self, grace_seconds: float) -> None: ...


class PodRunner:
    """Runs one pod until it is stopped or given up. ``run`` once; ``stop`` and ``kill`` at any time."""

    def __init__(
        self,
        start: Callable[[], Awaitable[Container]],
        look: Callable[[Probe], Awaitable[Finding]],
        timing: PodTiming,
        book: RestartBook,
        events: PodEvents,
        clock: Clock,
    ) -> None:
        self._start = start
        self._look = look
        self._timing = timing
        self._book = book
        self._events = events
        self._clock = clock
        self._stop = asyncio.Event()
        self._kill = asyncio.Event()

    def stop(self) -> None:
        """Drain: SIGTERM now, SIGKILL after the grace period."""
        self._stop.set()

    def kill(self) -> None:
        """End without waiting for running requests."""
        self._stop.set()
        self._kill.set()

    async def run(self) -> PodEnd:
        """Keep the pod alive as its restart book says. Returns when it was stopped or is not started again."""
        while True:
            life = await self._live()
            if self._stop.is_set():
                return PodEnd(life.exit_code, life.reason)
            decision = self._book.after(life)
            if not isinstance(decision, Restart):
                return PodEnd(life.exit_code, f"{life.reason}; not started again: {decision.reason}")
            self._events.restarting(life, decision)
            await self._pause(decision.delay)
            if self._stop.is_set():
                return PodEnd(life.exit_code, life.reason)

    async def _live(self) -> Life:
        """One container, from start to exit."""
        container = await self._start()
        exited = asyncio.ensure_future(container.wait())
        try:
            started = self._clock.now()
            fault = await self._until_ready(exited, started)
            ready_at = None
            if fault is None and not exited.done() and not self._stop.is_set():
                ready_at = self._clock.now()
                self._events.ready(ready_at - started)
                fault = await self._while_ready(exited)
            ready_seconds = None if ready_at is None else self._clock.now() - ready_at
            if not exited.done():
                return await self._take_down(container, exited, fault, ready_seconds)
            return Life(_shell_code(exited.result()), describe(exited.result()), ready_seconds)
        finally:
            container.kill()
            await exited

    async def _until_ready(self, exited: asyncio.Future[int], started: float) -> str | None:
        """Poll until the pod is ready (None), ends or is stopped (None), or its start takes too long (the fault)."""
        startup = self._timing.startup
        told = started
        while not exited.done() and not self._stop.is_set():
            finding = await self._look(startup)
            if finding.ok:
                return None
            now = self._clock.now()
            if now - started >= startup.budget:
                return f"not ready after {startup.budget:.0f} s ({finding.seen})"
            if now - told >= PROGRESS_SECONDS:
                self._events.waiting(now - started, finding.seen)
                told = now
            await self._pause(min(startup.period, START_POLL_SECONDS), exited)
        return None

    async def _while_ready(self, exited: asyncio.Future[int]) -> str | None:
        """Watch a ready pod until it ends or is stopped (None) or fails its liveness probe (the fault)."""
        liveness = self._timing.liveness
        failures = 0
        while not exited.done() and not self._stop.is_set():
            await self._pause(liveness.period, exited)
            if exited.done() or self._stop.is_set():
                break
            finding = await self._look(liveness)
            failures = 0 if finding.ok else failures + 1
            if failures == 1:
                self._events.unready(finding.seen)
            if failures >= liveness.failures:
                return f"failed its health check {failures} times ({finding.seen})"
        return None

    async def _take_down(
        self, container: Container, exited: asyncio.Future[int], fault: str | None, ready_seconds: float | None
    ) -> Life:
        grace = self._timing.grace_seconds
        self._events.stopping(grace)
        container.terminate()
        await self._pause(grace, exited, self._kill)
        killed = not exited.done()
        container.kill()
        code = await exited
        if fault is not None:
            return Life(_shell_code(code) or 1, fault, ready_seconds)
        if killed:
            return Life(_shell_code(code), f"killed before it had drained ({grace:.0f} s allowed)", ready_seconds)
        return Life(_shell_code(code), describe(code), ready_seconds)

    async def _pause(
        self, seconds: float, exited: asyncio.Future[int] | None = None, until: asyncio.Event | None = None
    ) -> None:
        """Wait for ``seconds``, the exit, or the event (by default the stop request), whichever comes first."""
        waits: list[asyncio.Future[object]] = [
            asyncio.ensure_future(self._clock.sleep(seconds)),
            asyncio.ensure_future((until or self._stop).wait()),
        ]
        watched: list[asyncio.Future[object]] = [*waits, *([exited] if exited else [])]  # type: ignore[list-item]
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


def _shell_code(code: int) -> int:
    """128 + n for death by signal n, as shells report it."""
    return code if code >= 0 else 128 - code
