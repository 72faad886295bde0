"""Life of a local pod in virtual time: containers and probes are scripts, and sleeping costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from motley_operator.api.spec_topology import RecoverySpec
from motley_operator.local.pod import PodEnd, PodRunner, PodTiming
from motley_operator.local.probe import Finding, Probe
from motley_operator.local.restarts import GiveUp, Life, Restart, RestartBook

DEADLINE = 10.0
READY, NOT_YET = Finding(True, "HTTP 200"), Finding(False, "not listening yet")
TIMING = PodTiming(
    startup=Probe("/health", period=5, timeout=5, failures=4),
    liveness=Probe("/health", period=10, timeout=10, failures=3),
    grace_seconds=40,
)


class VirtualClock:
    """Jumps to the next wake-up whenever everybody sleeps. ``slept`` lists every sleep that ran to its end."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []
        self.at: list[tuple[float, Callable[[], None]]] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        wake = self.time + seconds
        while True:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            due = sorted((when, number) for number, (when, _) in enumerate(self.at) if when <= wake)
            if not due:
                break
            when, number = due[0]
            self.time = max(self.time, when)
            self.at.pop(number)[1]()
            await asyncio.sleep(0)
        self.time = wake
        self.slept.append(seconds)


class ScriptedContainer:
    """Ends when told; ``stops_with`` None ignores SIGTERM."""

    def __init__(self, stops_with: int | None = 0) -> None:
        self.exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.stops_with = stops_with
        self.signals: list[str] = []

    async def wait(self) -> int:
        return await asyncio.shield(self.exit)

    def end(self, code: int) -> None:
        if not self.exit.done():
            self.exit.set_result(code)

    def terminate(self) -> None:
        self.signals.append("TERM")
        if self.stops_with is not None:
            self.end(self.stops_with)

    def kill(self) -> None:
        self.signals.append("KILL")
        self.end(-9)


@dataclass
class Told:
    """Everything that the terminal was told."""

    said: list[str] = field(default_factory=list)

    def waiting(self, seconds: float, seen: str) -> None:
        self.said.append(f"waiting {seconds:.0f} {seen}")

    def ready(self, seconds: float) -> None:
        self.said.append(f"ready {seconds:.0f}")

    def unready(self, seen: str) -> None:
        self.said.append(f"unready {seen}")

    def restarting(self, life: Life, restart: Restart) -> None:
        self.said.append(f"restart {restart.number} in {restart.delay:.0f}: {life.reason}")

    def stopping(self, grace_seconds: float) -> None:
        self.said.append(f"stopping {grace_seconds:.0f}")


class Scene:
    """A pod runner with scripted containers and findings."""

    def __init__(self, recovery: RecoverySpec | None = None, restart: bool = True) -> None:
        self.clock = VirtualClock()
        self.told = Told()
        self.containers: list[ScriptedContainer] = []
        self.findings: Callable[[Scene], Finding] = lambda _: READY
        self.on_start: Callable[[Scene, ScriptedContainer], None] = lambda *_: None
        self.stops_with: int | None = 0
        book = RestartBook(recovery or RecoverySpec(), restart)
        self.runner = PodRunner(self._start, self._look, TIMING, book, self.told, self.clock)

    async def _start(self) -> ScriptedContainer:
        container = ScriptedContainer(self.stops_with)
        self.containers.append(container)
        self.on_start(self, container)
        return container

    async def _look(self, _: Probe) -> Finding:
        return self.findings(self)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.clock.at.append((self.clock.time + seconds, action))

    async def play(self) -> PodEnd:
        async with asyncio.timeout(DEADLINE):
            return await self.runner.run()


def crash_after(seconds: float, code: int = 70) -> Callable[[Scene, ScriptedContainer], None]:
    return lambda scene, container: scene.later(seconds, lambda: container.end(code))


async def test_it_becomes_ready_serves_and_drains_on_request() -> None:
    scene = Scene()
    scene.findings = lambda s: READY if s.clock.time >= 12 else NOT_YET
    scene.later(100, scene.runner.stop)
    assert await scene.play() == PodEnd(0, "exit code 0: drained")
    assert scene.told.said == ["waiting 10 not listening yet", "ready 12", "stopping 40"]
    assert scene.containers[0].signals[0] == "TERM"


async def test_it_is_killed_when_it_does_not_drain_in_time() -> None:
    scene = Scene()
    scene.stops_with = None
    scene.later(30, scene.runner.stop)
    assert await scene.play() == PodEnd(137, "killed before it had drained (40 s allowed)")
    assert scene.containers[0].signals[:2] == ["TERM", "KILL"]
    assert scene.clock.time == pytest.approx(70)


async def test_a_second_request_kills_at_once() -> None:
    scene = Scene()
    scene.stops_with = None
    scene.later(30, scene.runner.stop)
    scene.later(35, scene.runner.kill)
    end = await scene.play()
    assert end.exit_code == 137
    assert scene.clock.time < 40


async def test_a_crash_before_readiness_is_final_and_passes_its_code_on() -> None:
    scene = Scene()
    scene.findings = lambda _: NOT_YET
    scene.on_start = crash_after(7, code=70)
    end = await scene.play()
    assert end.exit_code == 70
    assert "it never became ready" in end.reason
    assert len(scene.containers) == 1


@pytest.mark.parametrize("code", [2, 78])
async def test_refused_configuration_and_wrong_cards_are_not_tried_again(code: int) -> None:
    scene = Scene()
    scene.on_start = crash_after(7, code)
    end = await scene.play()
    assert end.exit_code == code
    assert "it would end the same way again" in end.reason
    assert len(scene.containers) == 1


async def test_a_start_that_takes_too_long_is_ended() -> None:
    scene = Scene()
    scene.findings = lambda _: Finding(False, "HTTP 503 loading")
    scene.stops_with = 0
    end = await scene.play()
    assert end.exit_code == 1
    assert end.reason.startswith("not ready after 20 s (HTTP 503 loading)")
    assert scene.told.said[0] == "waiting 10 HTTP 503 loading"


async def test_crashes_are_restarted_with_doubling_pauses_up_to_the_cap() -> None:
    scene = Scene(RecoverySpec(max_restarts=4, backoff_base_seconds=10, backoff_max_seconds=35))
    scene.on_start = crash_after(21)
    end = await scene.play()
    assert end.exit_code == 70
    assert "restarted 4 times already (spec.recovery.maxRestarts)" in end.reason
    assert len(scene.containers) == 5
    assert [text.split(":")[0] for text in scene.told.said if text.startswith("restart")] == [
        "restart 1 in 10",
        "restart 2 in 20",
        "restart 3 in 35",
        "restart 4 in 35",
    ]
    assert [pause for pause in scene.clock.slept if pause not in (5, 10)] == [20, 35, 35]


async def test_long_readiness_forgives_earlier_crashes() -> None:
    scene = Scene(RecoverySpec(max_restarts=1, reset_after_seconds=600))
    scene.on_start = lambda s, container: s.later([21, 700, 21, 21][len(s.containers) - 1], lambda: container.end(70))
    end = await scene.play()
    assert end.exit_code == 70
    assert len(scene.containers) == 3


async def test_restarts_can_be_switched_off() -> None:
    scene = Scene(restart=False)
    scene.on_start = crash_after(21, code=-11)
    assert await scene.play() == PodEnd(139, "killed by SIGSEGV; not started again: restarts are switched off")


async def test_recovery_policy_none_leaves_a_crashed_pod_down() -> None:
    scene = Scene(RecoverySpec(restart_policy="None"))
    scene.on_start = crash_after(21)
    await scene.play()
    assert len(scene.containers) == 1


async def test_a_stuck_pod_is_taken_down_and_restarted() -> None:
    scene = Scene(RecoverySpec(max_restarts=1))
    scene.findings = lambda s: Finding(False, "timed out") if len(s.containers) == 1 and s.clock.time > 25 else READY
    scene.later(300, scene.runner.stop)
    end = await scene.play()
    assert end.exit_code == 0
    assert scene.told.said[:4] == [
        "ready 0",
        "unready timed out",
        "stopping 40",
        "restart 1 in 10: failed its health check 3 times (timed out)",
    ]


async def test_one_late_answer_is_forgiven() -> None:
    scene = Scene()
    scene.findings = lambda s: Finding(False, "timed out") if 15 < s.clock.time < 35 else READY
    scene.later(200, scene.runner.stop)
    assert (await scene.play()).exit_code == 0
    assert len(scene.containers) == 1


async def test_a_stop_during_the_pause_starts_nothing() -> None:
    scene = Scene()
    scene.on_start = crash_after(21)
    scene.later(25, scene.runner.stop)
    end = await scene.play()
    assert end.exit_code == 70
    assert len(scene.containers) == 1


async def test_a_stop_during_the_start_ends_the_start() -> None:
    scene = Scene()
    scene.findings = lambda _: NOT_YET
    scene.later(7, scene.runner.stop)
    assert (await scene.play()).exit_code == 0
    assert scene.told.said == ["stopping 40"]


def test_the_book_never_builds_a_huge_pause() -> None:
    book = RestartBook(RecoverySpec(max_restarts=1000, backoff_max_seconds=600))
    delays = [book.after(Life(70, "x", 1.0)) for _ in range(1000)]
    assert all(isinstance(delay, Restart) and delay.delay <= 600 for delay in delays)
    assert isinstance(book.after(Life(70, "x", 1.0)), GiveUp)
