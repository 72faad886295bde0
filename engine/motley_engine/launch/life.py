"""Ranks live no longer than their parent and leave stopping to it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def bind_to_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends, however it ends.

    Call first thing in a child of process ``parent``; if that has ended already, this process ends too. Signals meant
    to stop the replica reach the whole process group, but only the parent acts on them.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
