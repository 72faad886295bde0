"""Nameless shared memory for spawned processes: nothing under /dev/shm, so nothing is left behind however they end."""

from __future__ import annotations

import mmap
import os
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
import numpy.typing as npt


class SharedBlock:
    """``size`` zeroed bytes that processes started with the spawn method share when it is among their arguments.

    Pages are committed on first touch. The kernel frees the memory with the last process that maps it.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._fd = os.memfd_create("motley", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, size)
        self._map = mmap.mmap(self._fd, size)

    def bytes(self) -> memoryview:
        return memoryview(self._map)

    def array(self, dtype: npt.DTypeLike, count: int, offset: int = 0) -> npt.NDArray[Any]:
        """``count`` elements from byte ``offset`` on, as a view."""
        return np.frombuffer(self._map, dtype=dtype, count=count, offset=offset)

    def __getstate__(self) -> dict[str, Any]:
        return {"size": self.size, "fd": DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.size = state["size"]
        self._fd = state["fd"].detach()
        self._map = mmap.mmap(self._fd, self.size)
