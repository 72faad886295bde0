"""The plan ring with real reader processes: every reader sees every record, whatever sizes and wrap-arounds."""

from __future__ import annotations

import multiprocessing as mp
import random
import threading
import zlib
from multiprocessing.connection import Connection

import pytest

from motley_engine.comm.ring import Ring, RingError, RingReader, RingWriter

DEADLINE = 60.0


def records(seed: int, count: int, longest: int) -> list[bytes]:
    rng = random.Random(seed)
    sizes = [rng.choice((0, 1, 63, 64, 65, rng.randrange(longest + 1), longest)) for _ in range(count)]
    return [rng.randbytes(size) for size in sizes]


def read_all(ring: Ring, reader: int, count: int, answer: Connection) -> None:
    end = RingReader(ring, reader)
    sums = []
    for _ in range(count):
        record = end.read(DEADLINE)
        assert record is not None
        with record as data:
            sums.append((len(data), zlib.crc32(data)))
    assert end.read(0.0) is None
    answer.send(sums)


@pytest.mark.parametrize("capacity", [512, 4096])
def test_two_processes_read_every_record_in_order(capacity: int):
    context = mp.get_context("spawn")
    ring = Ring(context, capacity, readers=2)
    sent = records(capacity, 2000, ring.longest)
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    readers = [context.Process(target=read_all, args=(ring, r, len(sent), pipes[r][1])) for r in range(2)]
    for process in readers:
        process.start()
    writer = RingWriter(ring)
    for data in sent:
        cut = len(data) // 3
        writer.write((data[:cut], data[cut:]), DEADLINE)
    expected = [(len(data), zlib.crc32(data)) for data in sent]
    for process, (receive, _) in zip(readers, pipes, strict=True):
        assert receive.poll(DEADLINE)
        assert receive.recv() == expected
        process.join(DEADLINE)
        assert process.exitcode == 0


def test_a_slow_reader_stops_the_writer_within_its_bound():
    ring = Ring(mp.get_context("spawn"), 512, readers=2)
    writer, fast = RingWriter(ring), RingReader(ring, 0)
    for _ in range(2):
        writer.write((bytes(150),), DEADLINE)
        with fast.read(DEADLINE) as data:
            assert len(data) == 150
    with pytest.raises(TimeoutError, match="rank 2 is 2 records behind"):
        writer.write((bytes(150),), 0.05)


def test_a_waiting_writer_goes_on_when_the_reader_gives_back():
    ring = Ring(mp.get_context("spawn"), 512, readers=1)
    writer, reader = RingWriter(ring), RingReader(ring, 0)
    writer.write((bytes(150),), DEADLINE)
    held = reader.read(DEADLINE)
    writer.write((bytes(100),), DEADLINE)
    blocked = threading.Thread(target=writer.write, args=((bytes(150),), DEADLINE))
    blocked.start()
    with held:
        assert blocked.is_alive()
    with reader.read(DEADLINE):
        pass
    blocked.join(DEADLINE)
    assert not blocked.is_alive()
    with reader.read(DEADLINE) as data:
        assert len(data) == 150


def test_a_record_beyond_the_limit_is_refused():
    ring = Ring(mp.get_context("spawn"), 512, readers=1)
    with pytest.raises(ValueError, match="ring record of 193 bytes"):
        RingWriter(ring).write((bytes(ring.longest + 1),), 1.0)


def test_a_broken_sequence_is_noticed():
    ring = Ring(mp.get_context("spawn"), 512, readers=1)
    RingWriter(ring).write((b"x",), 1.0)
    ring.block.array("int64", 1)[0] = 7
    with pytest.raises(RingError, match="record 7 where 0 was due"):
        RingReader(ring, 0).read(1.0)
