"""All live requests. The one place where a request starts to run, is retracted, or ends."""

from __future__ import annotations

from motley_engine.cache.ledger import Ledger
from motley_engine.cache.prefix import Match
from motley_engine.messages import FinishReason, Update
from motley_engine.scheduler.counters import Counters
from motley_engine.scheduler.queue import WaitingQueue
from motley_engine.scheduler.request import Phase, Request
from motley_engine.scheduler.rows import Rows, final_length


class Roster:
    """Owns queue, rows and pages of every request from arrival to its last update.

    A request may end while a step that computes it is in flight. Its row and pages are free at once: executors run
    plans in order, so whoever gets them next is computed later, and the late result is dropped because the request is
    done. The stray K/V write of such a step lands beyond the part that went to the prefix cache (see ``_known``).
    """

    def __init__(self, rows: Rows, ledger: Ledger, counters: Counters) -> None:
        self.live: dict[str, Request] = {}
        self.queue = WaitingQueue()
        self.prefilling: list[Request] = []
        self.updates: list[Update] = []
        self.rows = rows
        self.ledger = ledger
        self.counters = counters

    @property
    def running(self) -> list[Request]:
        """Requests that hold a row, in row order."""
        return self.rows.at(self.rows.active)

    def take_updates(self) -> list[Update]:
        """Updates since the last call, in order."""
        taken, self.updates = self.updates, []
        return taken

    def enqueue(self, request: Request) -> None:
        self.live[request.rid] = request
        request.queued_at = self.counters.steps
        self.queue.add(request)

    def start(self, request: Request, match: Match) -> None:
        """Move a waiting request into a free row, with the cached prefix as its start."""
        self.queue.remove(request)
        if request.cached_tokens is None:
            self.counters.prompt_tokens += len(request.prompt)
            self.counters.cached_tokens += match.length
        row = self.rows.take(request)
        request.start(row, match.length)
        self.ledger.attach(row, match)
        self.rows.length[row] = match.length
        self.rows.window_cap[row] = window_need(self.ledger, request)
        self.prefilling.append(request)

    def retract(self, request: Request) -> None:
        """Back to the queue; what was computed stays cached as long as there is room. Nothing may be in flight."""
        self._leave(request)
        request.retract()
        request.queued_at = self.counters.steps
        self.queue.add(request)
        self.counters.retractions += 1

    def end(self, request: Request, reason: FinishReason | None) -> None:
        """End a request early. ``reason`` None: its stop string matched and nobody waits, so nothing is said."""
        self.close(request)
        if reason is None:
            self.counters.finished += 1
        else:
            self.counters.aborted += 1
            self.updates.append(request.update([], reason))

    def close(self, request: Request) -> None:
        """Take a request out, whatever its phase, and free all it holds."""
        if request.phase is Phase.WAITING:
            self.queue.remove(request)
        else:
            self._leave(request)
        request.end()
        del self.live[request.rid]

    def _leave(self, request: Request) -> None:
        row = request.row
        if not self.rows.decoding[row]:
            self.prefilling.remove(request)
        self.ledger.release(row, request.tokens()[: self._known(request)])
        self.rows.give_back(row)

    def _known(self, request: Request) -> int:
        """Tokens whose K/V may be cached: never the last one, which only an overrun step computes, so that the loop
        caches the same with and without overlap."""
        return min(int(self.rows.length[request.row]), len(request.prompt) + len(request.output) - 1)


def window_need(ledger: Ledger, request: Request) -> int:
    """Window pages that the request may hold at once, besides those of a chunk."""
    return min(ledger.window_cap, ledger.pages_for(final_length(request)))
