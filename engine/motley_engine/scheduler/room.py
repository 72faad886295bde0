"""Makes room by retraction: when decoding runs out of pages, and when a much larger priority waits."""

from __future__ import annotations

import numpy as np

from motley_engine.config.schema import SchedulerSection
from motley_engine.scheduler.admission import Admission, too_large
from motley_engine.scheduler.policy import Policy
from motley_engine.scheduler.request import Request
from motley_engine.scheduler.roster import Roster


class Room:
    """Retracts the lowest priority first, and the youngest of those. The oldest of the highest always goes on, so some
    request advances in every step. Cached prefixes count as free: they are evicted before anything is retracted."""

    def __init__(self, config: SchedulerSection, roster: Roster, admission: Admission, policy: Policy) -> None:
        self._roster = roster
        self._admission = admission
        self._policy = policy
        # equal priorities never preempt each other, whatever the threshold
        self._margin = max(config.priority_scheduling_preemption_threshold, 1)
        self._preempts = config.enable_priority_scheduling

    def short(self) -> bool:
        """Whether something has to be retracted before the next step; ask again once nothing is in flight."""
        return self._decode_short() or self._claim() is not None

    def make(self) -> None:
        """Retract what ``short`` asks for. Nothing may be in flight."""
        while self._decode_short():
            running = self._roster.running
            if len(running) == 1:
                self._roster.end(running[0], too_large(self._roster))
            else:
                self._roster.retract(max(running, key=_dispensable))
        while (claim := self._claim()) is not None:
            self._roster.retract(max(self._victims(claim), key=_dispensable))

    def _decode_short(self) -> bool:
        rows, ledger = self._roster.rows, self._roster.ledger
        due = rows.due
        need = int(ledger.missing(due, rows.length[due] + 1).sum())
        return need > ledger.full.pool.free and need > ledger.available

    def _claim(self) -> Request | None:
        """The next waiting request, if it cannot start but would once its victims are retracted."""
        if not self._preempts or not len(self._roster.queue):
            return None
        head = self._policy.order(self._roster.queue, self._roster.counters.steps)[0]
        victims = {request.row for request in self._victims(head)}
        if not victims or not self._admission.blocked(head):
            return None
        others = [row for row in self._roster.rows.active.tolist() if row not in victims]
        return head if self._admission.fits_beside(head, np.array(others, np.int32)) else None

    def _victims(self, claim: Request) -> list[Request]:
        return [request for request in self._roster.running if claim.priority - request.priority >= self._margin]


def _dispensable(request: Request) -> tuple[int, int]:
    return -request.priority, request.arrival
