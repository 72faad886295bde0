"""What an engine process says with its exit code. The engine uses the same numbers; the operator may not import it."""

from __future__ import annotations

import signal
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of `motley serve`."""

    OK = 0
    CONFIG_REFUSED = 2
    RANK_DIED = 70
    RANK_STALLED = 71
    START_FAILED = 72
    GPU_MISMATCH = 78
    INTERRUPTED = 130


MEANINGS: dict[int, str] = {
    ExitCode.OK: "drained",
    ExitCode.CONFIG_REFUSED: "the engine refused its configuration or plan",
    ExitCode.RANK_DIED: "a rank died",
    ExitCode.RANK_STALLED: "a rank stalled",
    ExitCode.START_FAILED: "a rank failed before the engine was ready",
    ExitCode.GPU_MISMATCH: "the engine saw other GPUs than its plan names",
    ExitCode.INTERRUPTED: "stopped before it was ready, or before it had drained",
}


def describe(code: int) -> str:
    """An exit code (negative: a signal) in a few words."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}: {MEANINGS.get(code, 'the engine failed')}"
