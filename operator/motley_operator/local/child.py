"""Runs a command that ends with its parent: ``python -m motley_operator.local.child PARENT-PID COMMAND...``.

Asks the kernel to send SIGTERM when the parent dies, so that a killed `motley up` leaves no engine behind. A module of
its own, because the request must be made by the child between fork and exec, where a threaded parent may run no Python.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Replace this process by the command. Ends at once when the parent is already gone."""
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
