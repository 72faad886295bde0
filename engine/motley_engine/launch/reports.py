"""What a rank tells the parent over its pipe, before it serves and when it fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from motley_engine.executor.memory import MemoryRow
from motley_engine.executor.step import Geometry


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` of ``total`` in ``stage``: "load" counts bytes, "graphs" captured graphs."""

    rank: int
    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The rank can serve. ``notes`` say what it chose by itself."""

    rank: int
    pid: int
    row: MemoryRow
    geometry: Geometry
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """The rank is about to end with exit code ``code``."""

    rank: int
    code: int
    reason: str


Report: TypeAlias = Progress | Ready | Failed
