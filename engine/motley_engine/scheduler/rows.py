"""Running requests as numpy arrays, one entry per row, so that a decode step costs no work per request."""

from __future__ import annotations

import heapq

import numpy as np

from motley_engine.executor.step import IntArray
from motley_engine.scheduler.request import Request


class Rows:
    """Row allocator and per-row state; lengths and counts are in tokens.

    ``length`` tokens have their K/V planned, ``context`` is what prefill has to reach, ``final`` the most the row can
    reach. ``sampled`` counts output tokens planned, of ``max_new``. While a step is in flight both run ahead of what
    the request knows. A row decodes once its prefill is planned to the end.
    """

    def __init__(self, count: int) -> None:
        self.requests: list[Request | None] = [None] * count
        self._free = list(range(count))
        self.used = np.zeros(count, np.bool_)
        self.decoding = np.zeros(count, np.bool_)
        self.length = np.zeros(count, np.int64)
        self.context = np.zeros(count, np.int64)
        self.final = np.zeros(count, np.int64)
        self.sampled = np.zeros(count, np.int64)
        self.max_new = np.zeros(count, np.int64)
        self.window_cap = np.zeros(count, np.int64)
        self.min_new = np.zeros(count, np.int64)
        self.seed = np.zeros(count, np.uint64)
        self.temperature = np.zeros(count, np.float32)
        self.top_k = np.zeros(count, np.int32)
        self.top_p = np.zeros(count, np.float32)
        self.min_p = np.zeros(count, np.float32)
        self.state = np.zeros(count, np.bool_)
        self.top_logprobs = np.zeros(count, np.int32)
        self.asks = np.zeros(count, np.bool_)

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def active(self) -> IntArray:
        """Rows in use, ascending."""
        return np.flatnonzero(self.used).astype(np.int32)

    @property
    def due(self) -> IntArray:
        """Rows that decode one more token, ascending."""
        return np.flatnonzero(self.decoding & (self.sampled < self.max_new)).astype(np.int32)

    def at(self, rows: IntArray) -> list[Request]:
        """The requests in these rows."""
        found = [self.requests[row] for row in rows.tolist()]
        return [request for request in found if request is not None]

    def take(self, request: Request) -> int:
        """Put a request into the lowest free row."""
        row = heapq.heappop(self._free)
        self.requests[row] = request
        self.used[row] = True
        self.length[row] = 0
        self.context[row] = len(request.context)
        self.final[row] = final_length(request)
        self.sampled[row] = len(request.output)
        self.max_new[row] = request.max_new
        self._set_sampling(row, request)
        return row

    def give_back(self, row: int) -> None:
        assert self.used[row], "a free row was given back"
        self.requests[row] = None
        self.used[row] = self.decoding[row] = False
        self.window_cap[row] = 0
        heapq.heappush(self._free, row)

    def _set_sampling(self, row: int, request: Request) -> None:
        wanted, logprobs = request.sampling, request.logprobs
        self.min_new[row] = wanted.min_new_tokens if request.stop_ids else 0
        self.seed[row] = request.seed
        self.temperature[row] = wanted.temperature
        self.top_k[row] = wanted.top_k
        self.top_p[row] = wanted.top_p
        self.min_p[row] = wanted.min_p
        self.state[row] = request.has_state
        self.top_logprobs[row] = logprobs.top if logprobs else -1
        self.asks[row] = bool(logprobs and logprobs.token_ids)


def final_length(request: Request) -> int:
    """Most K/V positions a request ever fills: its last output token is never fed back."""
    return len(request.prompt) + max(request.max_new, 1) - 1
