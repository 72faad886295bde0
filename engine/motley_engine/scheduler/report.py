"""What the scheduler says about itself: its Stats, and whether anything leaked while it was idle."""

from __future__ import annotations

import logging
from dataclasses import asdict

from motley_engine.cache.audit import leaked_pages
from motley_engine.cache.pages import OwnershipError
from motley_engine.messages import Stats
from motley_engine.scheduler.roster import Roster

log = logging.getLogger(__name__)


def stats(roster: Roster, call: int = -1) -> Stats:
    """Counters since start and gauges now; ``pages_cached`` counts what could be evicted."""
    full, window = roster.ledger.full.pool, roster.ledger.window.pool
    return Stats(
        call=call,
        running=len(roster.live) - len(roster.queue),
        waiting=len(roster.queue),
        pages_total=full.total,
        pages_free=full.free,
        pages_cached=roster.ledger.cache.evictable,
        window_pages_total=window.total,
        window_pages_free=window.free,
        **asdict(roster.counters),
    )


def check_leaks(roster: Roster, fatal: bool) -> None:
    """While no request lives, every page is free or cached and every row is free. A leak is logged and counted, and
    raised as OwnershipError if ``fatal``."""
    pages, rows = leaked_pages(roster.ledger), len(roster.rows.active)
    if (pages or rows) and pages != roster.counters.leaked_pages:
        log.error("leak: %d pages and %d rows are held by no request", pages, rows)
    roster.counters.leaked_pages = pages
    if (pages or rows) and fatal:
        raise OwnershipError(f"{pages} pages and {rows} rows are held by no request")
