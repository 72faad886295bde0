"""How a replica ends, as exit codes that an operator or a script can tell apart. Listed in docs/exit-codes.md."""

from __future__ import annotations

OK = 0
"""Told to stop, and drained."""
CONFIG_REFUSED = 2
"""A flag, file, model or budget is wrong; nothing was served. Starting again changes nothing."""
RANK_DIED = 70
"""A rank's process ended or failed while serving."""
RANK_STALLED = 71
"""A rank stopped giving signs of life, or a step took longer than the watchdog allows."""
START_FAILED = 72
"""A rank failed or ran out of time before the replica was ready."""
GPU_MISMATCH = 78
"""A rank found another GPU than the plan names; plan again."""
INTERRUPTED = 130
"""A second signal ended the replica before its drain was over."""
