"""What an engine process says with its exit code. The engine uses the same numbers; the operator may not import it."""

from __future__ import annotations

import signal
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of `motley serve`."""

    OK = 0
    INVALID_SPEC = 2
    GPU_MISMATCH = 78


MEANINGS: dict[int, str] = {
    ExitCode.OK: "ended by itself",
    ExitCode.INVALID_SPEC: "the engine refused its configuration or plan",
    ExitCode.GPU_MISMATCH: "the engine saw other GPUs than its plan names",
}


def describe(code: int) -> str:
    """An exit code (negative: a signal) in a few words."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}: {MEANINGS.get(code, 'the engine failed')}"
