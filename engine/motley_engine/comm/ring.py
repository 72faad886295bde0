"""A byte ring in shared memory: one writer, several readers that each see every record. Knows nothing of step plans.

All synchronisation is by semaphores, which also order memory: ``filled[r]`` counts records that reader r may read,
``freed[r]`` those it has given back. A record is contiguous, so readers get a view and copy nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from multiprocessing.context import SpawnContext
from multiprocessing.synchronize import Semaphore
from types import TracebackType
from typing import TypeAlias

from motley_engine.comm.shared import SharedBlock

ALIGN = 64
_HEADER = ALIGN
_FILLER = 1

Buffer: TypeAlias = bytes | bytearray | memoryview


class RingError(RuntimeError):
    """The ring's content contradicts its protocol; the replica cannot go on."""


class Ring:
    """What both ends share; pass it to the reader processes as a spawn argument.

    ``capacity`` in bytes; the longest record is half of it less a header. Header words (int64): index, length, flags.
    """

    def __init__(self, context: SpawnContext, capacity: int, readers: int) -> None:
        self.capacity = -(-capacity // ALIGN) * ALIGN
        self.block = SharedBlock(self.capacity)
        self.filled: tuple[Semaphore, ...] = tuple(context.Semaphore(0) for _ in range(readers))
        self.freed: tuple[Semaphore, ...] = tuple(context.Semaphore(0) for _ in range(readers))

    @property
    def longest(self) -> int:
        """Bytes of the largest record that always fits, wherever the last one ended."""
        return self.capacity // 2 - _HEADER


class RingWriter:
    """The only writer. ``write`` waits for the slowest reader, at most its timeout."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._bytes = ring.block.bytes()
        self._words = ring.block.array("int64", ring.capacity // 8)
        self._index = 0
        self._end = 0
        # where each record that a reader still holds starts, oldest first
        self._held: list[deque[int]] = [deque() for _ in ring.filled]

    def write(self, parts: Sequence[Buffer], timeout: float) -> None:
        """Append one record made of ``parts`` in order.

        ValueError if it is longer than the ring allows, TimeoutError if a reader does not give back enough in time.
        """
        length = sum(len(part) for part in parts)
        if length > self._ring.longest:
            raise ValueError(f"ring record of {length} bytes; the ring takes {self._ring.longest}")
        deadline = time.monotonic() + timeout
        span = _HEADER + -(-length // ALIGN) * ALIGN
        if self._end % self._ring.capacity + span > self._ring.capacity:
            self._put([], self._ring.capacity - self._end % self._ring.capacity, _FILLER, deadline)
        self._put(parts, span, 0, deadline)

    def _put(self, parts: Sequence[Buffer], span: int, flags: int, deadline: float) -> None:
        self._reserve(span, deadline)
        at = self._end % self._ring.capacity
        cursor = at + _HEADER
        for part in parts:
            self._bytes[cursor : cursor + len(part)] = part
            cursor += len(part)
        self._words[at // 8 : at // 8 + 3] = (self._index, cursor - at - _HEADER, flags)
        for held, filled in zip(self._held, self._ring.filled, strict=True):
            held.append(self._end)
            filled.release()
        self._index += 1
        self._end += span

    def _reserve(self, span: int, deadline: float) -> None:
        for reader, (held, freed) in enumerate(zip(self._held, self._ring.freed, strict=True)):
            while held and freed.acquire(False):
                held.popleft()
            while held and self._end + span - held[0] > self._ring.capacity:
                if not freed.acquire(timeout=max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"plan ring: rank {reader + 1} is {len(held)} records behind")
                held.popleft()


class Record:
    """One record on loan: ``data`` is valid inside the ``with`` block and goes back to the writer at its end."""

    def __init__(self, data: memoryview, freed: Semaphore) -> None:
        self.data = data
        self._freed = freed

    def __enter__(self) -> memoryview:
        return self.data

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._freed.release()


class RingReader:
    """Reader ``reader`` of the ring (0 for rank 1). Records come in the order written, none skipped."""

    def __init__(self, ring: Ring, reader: int) -> None:
        self._ring = ring
        self._bytes = ring.block.bytes()
        self._words = ring.block.array("int64", ring.capacity // 8)
        self._filled = ring.filled[reader]
        self._freed = ring.freed[reader]
        self._index = 0
        self._end = 0

    def read(self, timeout: float) -> Record | None:
        """The next record, or None if none came in ``timeout`` seconds. RingError if the sequence is broken."""
        deadline = time.monotonic() + timeout
        while self._filled.acquire(timeout=max(0.0, deadline - time.monotonic())):
            at = self._end % self._ring.capacity
            index, length, flags = (int(word) for word in self._words[at // 8 : at // 8 + 3])
            if index != self._index:
                raise RingError(f"plan ring: record {index} where {self._index} was due")
            self._index += 1
            if flags == _FILLER:
                self._end += self._ring.capacity - at
                self._freed.release()
                continue
            self._end += _HEADER + -(-length // ALIGN) * ALIGN
            return Record(self._bytes[at + _HEADER : at + _HEADER + length], self._freed)
        return None
