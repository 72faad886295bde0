"""In which order waiting requests are admitted."""

from __future__ import annotations

from typing import Literal

from motley_engine.cache.prefix import PrefixCache
from motley_engine.scheduler.queue import WaitingQueue
from motley_engine.scheduler.request import Request

LONGEST_MATCHED_QUEUE = 128
"""Longer queues are served first come, first served: matching all of them would cost more than it saves."""

PATIENCE = 512
"""Steps after which a waiting request is no longer passed over by requests with longer prefixes."""


class Policy:
    """``fcfs``: first come. ``lpm``: longest cached prefix first. Priority always comes before both."""

    def __init__(self, name: Literal["fcfs", "lpm"], cache: PrefixCache) -> None:
        self._match = name == "lpm"
        self._cache = cache
        self._order: list[Request] = []
        self._made_for = (-1, -1)

    def order(self, queue: WaitingQueue, step: int) -> list[Request]:
        """Waiting requests, next one first. Kept as long as neither queue nor cache changes."""
        if not self._match or len(queue) > LONGEST_MATCHED_QUEUE:
            return list(queue)
        state = (queue.version, self._cache.version)
        if state != self._made_for:
            self._order = self._longest_first(queue, step)
            self._made_for = state
        return self._order

    def _longest_first(self, queue: WaitingQueue, step: int) -> list[Request]:
        def place(request: Request) -> tuple[int, int, int]:
            overdue = step - request.queued_at > PATIENCE
            matched = len(request.context) if overdue else self._cache.probe(request.context, request.match_limit)
            return -request.priority, -matched, request.arrival

        return sorted(queue, key=place)
