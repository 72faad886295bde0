"""The loop of every rank but 0: take the next plan from the ring, run it, give the record back."""

from __future__ import annotations

from collections.abc import Callable

from motley_engine.comm.ring import RingReader
from motley_engine.executor.step import StepKind
from motley_engine.executor.wire import unpack
from motley_engine.executor.worker import Worker

_WAIT_SECONDS = 1.0


def follow(reader: RingReader, worker: Worker, on_step: Callable[[int, bool], None]) -> None:
    """Run plans until STOP. ``on_step(seq, done)`` marks each one's start and end for the supervisor.

    Raises whatever a step raises, and WireError for a plan that is malformed or out of sequence.
    """
    expected: int | None = None
    while True:
        record = reader.read(_WAIT_SECONDS)
        if record is None:
            continue
        with record as data:
            frame = unpack(data, expected)
            if frame.kind is StepKind.STOP:
                return
            on_step(frame.seq, False)
            worker.step(frame, None)
            on_step(frame.seq, True)
        expected = frame.seq + 1
