"""Ranks live no longer than their parent and leave stopping to it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PR_SET_PDEATHSIG = 1
_STOPS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_signals_blocked() -> Iterator[None]:
    """Children started meanwhile never see SIGINT and SIGTERM, which reach the whole process group but are the
    parent's to act on. Signals that come meanwhile are delivered to the parent afterwards."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)


def bind_to_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends, however it ends.

    Call first thing in a child of process ``parent``; if that has ended already, this process ends too.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
