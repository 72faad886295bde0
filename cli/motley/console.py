"""The console that commands print on."""

from __future__ import annotations

import os

from rich.console import Console

FILE_WIDTH = 160
"""Columns where no terminal limits them, so that plan tables in logs stay whole."""


def stdout_console() -> Console:
    """Standard output: as wide as the terminal or COLUMNS says, else wide enough for tables in a file or a pipe."""
    console = Console(highlight=False)
    limited = console.is_terminal or "COLUMNS" in os.environ
    return console if limited else Console(highlight=False, width=FILE_WIDTH)
