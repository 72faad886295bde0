"""Requests that wait, in first-come order: larger priority first, then the earlier arrival."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from motley_engine.scheduler.request import Request


def _place(request: Request) -> tuple[int, int]:
    return -request.priority, request.arrival


class WaitingQueue:
    """Sorted at all times. A retracted request keeps its arrival number, so it comes back in front of later ones."""

    def __init__(self) -> None:
        self._waiting: list[Request] = []
        self.version = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._waiting)

    def add(self, request: Request) -> None:
        insort(self._waiting, request, key=_place)
        self.version += 1

    def remove(self, request: Request) -> None:
        index = bisect_left(self._waiting, _place(request), key=_place)
        assert self._waiting[index] is request, "the request does not wait"
        del self._waiting[index]
        self.version += 1
