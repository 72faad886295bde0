"""The step loop. It hears the server, decides the next step, starts it, and takes over the results of the one before.

With overlap, step n + 1 is started before the results of step n are looked at: tokens not known yet are named by row,
and a request that turns out to have ended in step n has run one step too many, whose result is dropped. Everything that
needs settled results (retraction, flush, stop) settles first. Time comes from ``clock``; every wait is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from motley_engine.cache.audit import audit
from motley_engine.cache.ledger import Ledger
from motley_engine.config.schema import SchedulerSection
from motley_engine.executor.step import Geometry, PendingStep, StepKind, StepResult, StepRunner
from motley_engine.messages import (
    Abort,
    Batch,
    Drain,
    Drained,
    FinishReason,
    Flush,
    Flushed,
    Generate,
    Heartbeat,
    Inspect,
    Shutdown,
    ToScheduler,
)
from motley_engine.scheduler.admission import Admission
from motley_engine.scheduler.batch import Step, StepBuilder
from motley_engine.scheduler.counters import Counters
from motley_engine.scheduler.intake import Intake
from motley_engine.scheduler.mailbox import Mailbox
from motley_engine.scheduler.policy import Policy
from motley_engine.scheduler.report import check_leaks, stats
from motley_engine.scheduler.room import Room
from motley_engine.scheduler.roster import Roster
from motley_engine.scheduler.rows import Rows
from motley_engine.scheduler.settle import Settler

REPORT_SECONDS = 1.0
"""Longest silence of a healthy scheduler: Stats when it turns, Heartbeat while it waits for a step."""


class StepStalledError(RuntimeError):
    """A step did not end within the watchdog's time; the replica cannot go on."""


@dataclass(slots=True)
class _Flight:
    step: Step
    pending: PendingStep
    launched: float


class Scheduler:
    """One replica's scheduler. ``run`` returns after Shutdown and raises when a step fails or stalls."""

    def __init__(
        self,
        config: SchedulerSection,
        geometry: Geometry,
        runner: StepRunner,
        mailbox: Mailbox,
        clock: Callable[[], float],
        watchdog: float,
        seed: int = 0,
    ) -> None:
        self._runner = runner
        self._mailbox = mailbox
        self._clock = clock
        self._watchdog = watchdog
        self._checks = config.check_invariants
        self._ahead = 0 if config.disable_overlap_schedule else 1
        self._counters = Counters()
        self._rows = Rows(min(config.max_running_requests, geometry.max_running))
        self._ledger = Ledger(geometry, prefix_cache=not config.disable_radix_cache)
        self._roster = Roster(self._rows, self._ledger, self._counters)
        policy = Policy(config.schedule_policy, self._ledger.cache)
        self._admission = Admission(config, self._roster, policy)
        self._room = Room(config, self._roster, self._admission, policy)
        self._intake = Intake(config, geometry, self._roster, seed)
        self._builder = StepBuilder(self._rows)
        self._settler = Settler(self._roster)
        self._flights: deque[_Flight] = deque()
        self._open = True
        self._drained = False
        self._settled_at = self._reported_at = clock()

    def run(self) -> None:
        """Serve until Shutdown."""
        while self._open:
            self._receive()
            step = self._schedule()
            if step is not None:
                self._launch(step)
            self._settle(keep=0 if step is None else self._ahead)
            self._report()
            if self._idle:
                self._rest()
        self._stop()

    def _receive(self) -> None:
        for message in self._mailbox.receive():
            self._handle(message)
        self._tell()

    def _schedule(self) -> Step | None:
        """Decide the next step: all decoding rows, and as many prompt tokens as budget and pages allow."""
        if self._room.short():
            self._settle(keep=0)
            self._room.make()
        rows, ledger = self._rows, self._ledger
        ledger.slide(rows.active, rows.length[rows.active])
        decode = rows.due
        rows.length[decode] += 1
        ledger.extend(decode, rows.length[decode], rows.length[decode])
        chunks = self._admission.chunks()
        if not len(decode) and not chunks:
            return None
        return self._builder.build(decode, chunks, ledger.take_changes())

    def _launch(self, step: Step) -> None:
        pending = self._runner.submit(step.plan, step.sampling)
        self._flights.append(_Flight(step, pending, self._clock()))

    def _settle(self, keep: int) -> None:
        """Take over results, oldest first, until only ``keep`` steps are in flight."""
        while len(self._flights) > keep:
            flight = self._flights.popleft()
            self._settler.settle(flight.step, self._await(flight))
            now = self._clock()
            self._counters.count_step(now - max(flight.launched, self._settled_at))
            self._settled_at = now
        self._tell()

    def _await(self, flight: _Flight) -> StepResult:
        """Wait for a step, showing signs of life. Raises the step's own error, or StepStalledError."""
        waited = 0.0
        while True:
            patience = min(REPORT_SECONDS, self._watchdog - waited)
            try:
                return flight.pending.result(patience)
            except TimeoutError as error:
                waited += patience
                if waited >= self._watchdog:
                    plan = flight.step.plan
                    raise StepStalledError(
                        f"step {plan.seq} ({plan.kind.name}, {len(plan.rows)} sequences, {len(plan.tokens)} tokens) "
                        f"did not end within {self._watchdog:g} s (--watchdog-timeout)"
                    ) from error
                self._mailbox.send(Heartbeat(steps=self._counters.steps))

    def _tell(self) -> None:
        if self._roster.updates:
            self._mailbox.send(Batch(updates=self._roster.take_updates()))

    def _report(self) -> None:
        """Verify ownership if asked to; send Stats once a second."""
        if self._checks:
            audit(self._ledger, self._rows.active.tolist())
        if self._clock() - self._reported_at >= REPORT_SECONDS:
            self._mailbox.send(stats(self._roster))
            self._reported_at = self._clock()

    @property
    def _idle(self) -> bool:
        return not self._roster.live and not self._flights

    def _rest(self) -> None:
        """Nothing to do: check that nothing leaked, and wait for the next message or report."""
        check_leaks(self._roster, fatal=self._checks)
        if self._intake.draining and not self._drained:
            self._drained = True
            self._mailbox.send(Drained())
        self._mailbox.wait(max(self._reported_at + REPORT_SECONDS - self._clock(), 0.0))

    def _handle(self, message: ToScheduler) -> None:
        match message:
            case Generate():
                if (refusal := self._intake.accept(message)) is not None:
                    self._mailbox.send(refusal)
            case Abort():
                self._intake.abort(message)
            case Flush():
                self._mailbox.send(self._flush(message.call))
            case Inspect():
                self._mailbox.send(stats(self._roster, message.call))
            case Drain():
                self._intake.draining = True
            case Shutdown():
                self._open = False

    def _flush(self, call: int) -> Flushed:
        if self._roster.live:
            busy = f"{len(self._roster.live)} requests run or wait; nothing was flushed"
            return Flushed(call=call, ok=False, message=busy)
        self._settle(keep=0)
        self._ledger.clear()
        self._launch(self._builder.control(StepKind.FLUSH))
        self._settle(keep=0)
        return Flushed(call=call, ok=True, message="the prefix cache is empty")

    def _stop(self) -> None:
        """End what still lives with a reason, then the ranks."""
        for request in list(self._roster.live.values()):
            self._roster.end(request, FinishReason(kind="error", message="the engine was shut down"))
        self._settle(keep=0)
        self._launch(self._builder.control(StepKind.STOP))
        self._settle(keep=0)
