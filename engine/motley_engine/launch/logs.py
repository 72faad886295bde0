"""Log lines on stderr, one event each: time in UTC, level, process, place, text."""

from __future__ import annotations

import logging
import sys
import time


def set_up(level: str, process: str) -> None:
    """Send everything from ``level`` up to stderr as lines of ``process`` ("server" or "rank N")."""
    formatter = logging.Formatter(
        f"%(asctime)s.%(msecs)03dZ %(levelname)-7s {process:<6} %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # a line per request or connection is the business of whoever runs a proxy in front
    for chatty in ("uvicorn.access", "uvicorn.error", "httpx", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
