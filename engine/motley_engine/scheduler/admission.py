"""Which prompt tokens the next step computes: the rest of running prefills, then waiting requests while room lasts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motley_engine.cache.ledger import Lengths
from motley_engine.cache.prefix import Match
from motley_engine.config.schema import SchedulerSection
from motley_engine.executor.step import IntArray
from motley_engine.messages import FinishReason
from motley_engine.scheduler.policy import Policy
from motley_engine.scheduler.request import Request
from motley_engine.scheduler.roster import Roster, window_need
from motley_engine.scheduler.rows import final_length

_UNLIMITED = 1 << 62


@dataclass(slots=True)
class Chunk:
    """Tokens [start, stop) of a request's context, computed in one step; the last chunk is sampled from."""

    request: Request
    start: int
    stop: int

    @property
    def last(self) -> bool:
        return self.stop == len(self.request.context)


@dataclass(slots=True)
class _Allowance:
    """What one step may still spend: prompt tokens, and window pages beyond the rows' caps already taken."""

    tokens: int
    window_taken: int = 0


class Admission:
    """Hands out rows, pages and the step's token budget to prefills.

    Full pages are taken for the whole context at once, so a prefill that has started never waits for them. Window pages
    are taken per chunk: every row is sure of its ``window_cap``, and a chunk may use what the caps of all rows leave.
    """

    def __init__(self, config: SchedulerSection, roster: Roster, policy: Policy) -> None:
        self._budget = config.chunked_prefill_size if config.chunked_prefill_size > 0 else _UNLIMITED
        self._share = config.schedule_conservativeness
        self._roster = roster
        self._rows = roster.rows
        self._ledger = roster.ledger
        self._policy = policy

    def chunks(self) -> list[Chunk]:
        """Plan this step's prefill: pages are allocated, and whole pages published to the prefix cache."""
        allowance = _Allowance(self._budget)
        chunks = [self._extend(r, allowance) for r in list(self._roster.prefilling) if allowance.tokens]
        for request in self._candidates():
            if not allowance.tokens or not self._rows.free:
                break
            match = self._ledger.match(request.context, request.match_limit)
            if self._lacks(request, match, allowance.window_taken):
                if not self._rows.used.any():
                    self._roster.end(request, too_large(self._roster))
                    continue
                break
            self._roster.start(request, match)
            chunks.append(self._extend(request, allowance))
        return chunks

    def blocked(self, request: Request) -> bool:
        """Whether the request could not start now, for lack of a row or of pages."""
        match = self._ledger.match(request.context, request.match_limit)
        return not self._rows.free or self._lacks(request, match, 0)

    def fits_beside(self, request: Request, others: IntArray) -> bool:
        """Whether the request could start if only the rows ``others`` were running."""
        ledger = self._ledger
        caps = int(self._rows.window_cap[others].sum())
        if ledger.window.pool.total - caps < window_need(ledger, request):
            return False
        if not ledger.full.pool.total:
            return True
        match = ledger.match(request.context, request.match_limit)
        kept = np.unique(np.concatenate((match.full, *(ledger.full.held(row) for row in others.tolist()))))
        need = self._need(request, match, alone=not len(others)) + self._reserve(others)
        return need <= ledger.full.pool.total - len(kept)

    def _candidates(self) -> list[Request]:
        if not self._rows.free or not len(self._roster.queue):
            return []
        return self._policy.order(self._roster.queue, self._roster.counters.steps)

    def _lacks(self, request: Request, match: Match, window_taken: int) -> bool:
        """Whether pages are short: for the context, and for a share of all the output that is still to come."""
        ledger, rows = self._ledger, self._rows
        if self._window_spare() - window_taken < window_need(ledger, request):
            return True
        if not ledger.full.pool.total:
            return False
        need = self._need(request, match, alone=not rows.used.any()) + self._reserve(rows.active)
        return need > ledger.available - match.unlocked

    def _need(self, request: Request, match: Match, alone: bool) -> int:
        """Full pages to take for the context, and unless it runs alone to keep free for the request's output."""
        target = len(request.context)
        if not alone:
            target = min(final_length(request), target + int(self._growth(np.array([request.left]))[0]))
        return self._ledger.pages_for(target) - match.length // self._ledger.page_size

    def _reserve(self, running: IntArray) -> int:
        """Full pages kept free for the output of running rows."""
        rows = self._rows
        reached = np.maximum(rows.length[running], rows.context[running])
        growth = self._growth(rows.max_new[running] - rows.sampled[running])
        return int(self._ledger.missing(running, np.minimum(rows.final[running], reached + growth)).sum())

    def _growth(self, left: Lengths) -> Lengths:
        """Tokens of output to keep room for: the configured share, and at least a page against thrashing."""
        share: Lengths = np.maximum(
            np.ceil(self._share * left).astype(np.int64), np.minimum(left, self._ledger.page_size)
        )
        return share

    def _window_spare(self) -> int:
        return self._ledger.window.pool.total - int(self._rows.window_cap.sum())

    def _extend(self, request: Request, allowance: _Allowance) -> Chunk:
        """Take the next chunk of a running prefill."""
        row, rows, ledger = request.row, self._rows, self._ledger
        start = int(rows.length[row])
        stop = min(len(request.context), start + allowance.tokens, self._window_stop(row, start, allowance))
        assert stop > start, "a running prefill always advances"
        allowance.tokens -= stop - start
        allowance.window_taken += self._window_excess(row, start, stop)
        ledger.extend(np.array([row]), rows.context[row : row + 1], np.array([stop]))
        rows.length[row] = stop
        ledger.publish(row, request.context[:stop])
        if stop == len(request.context):
            rows.decoding[row] = True
            self._roster.prefilling.remove(request)
        return Chunk(request, start, stop)

    def _window_stop(self, row: int, start: int, allowance: _Allowance) -> int:
        """Where a chunk must end for lack of window pages."""
        if not self._ledger.window.pool.total:
            return _UNLIMITED
        pages = int(self._rows.window_cap[row]) + self._window_spare() - allowance.window_taken
        return (self._window_first(start) + pages) * self._ledger.page_size

    def _window_excess(self, row: int, start: int, stop: int) -> int:
        """Window pages that a chunk holds beyond the row's cap, until the row slides before the next step."""
        if not self._ledger.window.pool.total:
            return 0
        held = self._ledger.pages_for(stop) - self._window_first(start)
        return max(held - int(self._rows.window_cap[row]), 0)

    def _window_first(self, start: int) -> int:
        return max(start - self._ledger.window_tokens, 0) // self._ledger.page_size


def too_large(roster: Roster) -> FinishReason:
    """Why a request that has the whole pool to itself cannot go on."""
    tokens = roster.ledger.full.pool.total * roster.ledger.page_size
    return FinishReason(
        kind="error",
        message=f"the KV pool holds {tokens} tokens and this request alone needs more: ask for fewer tokens, or give "
        "the engine more memory (--rank-gpu-memory-mib, --mem-fraction-static, --max-total-tokens)",
    )
