"""When a dead pod is started again. Pure: the caller tells what happened and when."""

from __future__ import annotations

from dataclasses import dataclass

from motley_operator.api.spec_topology import RecoverySpec
from motley_operator.exit_codes import ExitCode

# a restart changes neither the flags nor the cards
FINAL_CODES = frozenset({ExitCode.OK, ExitCode.CONFIG_REFUSED, ExitCode.GPU_MISMATCH})


@dataclass(frozen=True, slots=True)
class Life:
    """One run of a pod. ``ready_seconds`` is None when it never became ready."""

    exit_code: int
    reason: str
    ready_seconds: float | None


@dataclass(frozen=True, slots=True)
class Restart:
    """Start again after ``delay`` seconds; this is restart ``number``."""

    delay: float
    number: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not start again; ``reason`` says why."""

    reason: str


class RestartBook:
    """Counts the restarts of one group as ``spec.recovery`` asks: backoff that doubles, a cap, and a reset."""

    def __init__(self, recovery: RecoverySpec, allowed: bool = True) -> None:
        self._recovery = recovery
        self._allowed = allowed and recovery.restart_policy == "RecreateGroup"
        self._count = 0

    def after(self, life: Life) -> Restart | GiveUp:
        """What to do after ``life`` has ended by itself."""
        if life.exit_code in FINAL_CODES:
            return GiveUp("it would end the same way again")
        if life.ready_seconds is None:
            return GiveUp("it never became ready")
        if not self._allowed:
            return GiveUp("restarts are switched off")
        if life.ready_seconds >= self._recovery.reset_after_seconds:
            self._count = 0
        if self._count >= self._recovery.max_restarts:
            return GiveUp(f"it was restarted {self._count} times already (spec.recovery.maxRestarts)")
        # doubling by shift, bounded so that a large count cannot build a huge number
        delay = min(self._recovery.backoff_max_seconds, self._recovery.backoff_base_seconds << min(self._count, 20))
        self._count += 1
        return Restart(delay, self._count)
