"""Collectives of real processes: the shared-memory group and torch.distributed must give the same answers."""

from __future__ import annotations

import multiprocessing as mp
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from motley_engine.comm.collectives import Collectives
from motley_engine.comm.distributed import DistributedCollectives
from motley_engine.comm.shared_group import CollectiveError, SharedCollectives, SharedGroup

DEADLINE = 60.0
SLOT = 4096
SHAPES = [(1,), (3, 5), (7, 1, 9), (2, SLOT // 4), (1000, 33)]


def part(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    values = torch.arange(torch.Size(shape).numel()).view(shape) % 13
    return (values + rank * 100).to(dtype)


def exercise(comm: Collectives) -> list[torch.Tensor]:
    seen = []
    for dtype in (torch.float32, torch.bfloat16):
        for shape in SHAPES:
            seen.append(comm.all_reduce(part(comm.rank, shape, dtype)))
    sizes = tuple(3 + 2 * rank for rank in range(comm.world))
    for rows in (1, 5, 600):
        gathered = comm.gather_columns(part(comm.rank, (rows, sizes[comm.rank]), torch.float32), sizes)
        assert (gathered is None) == (comm.rank != 0)
        if gathered is not None:
            seen.append(gathered)
    for dtype in (torch.int64, torch.float32):
        for shape in SHAPES:
            seen.append(comm.broadcast(part(comm.rank, shape, dtype)))
    return seen


def expected(rank: int, world: int) -> list[torch.Tensor]:
    wanted = []
    for dtype in (torch.float32, torch.bfloat16):
        for shape in SHAPES:
            wanted.append(sum(part(r, shape, dtype) for r in range(world)))
    sizes = tuple(3 + 2 * r for r in range(world))
    if rank == 0:
        for rows in (1, 5, 600):
            wanted.append(torch.cat([part(r, (rows, sizes[r]), torch.float32) for r in range(world)], dim=1))
    for dtype in (torch.int64, torch.float32):
        wanted += [part(0, shape, dtype) for shape in SHAPES]
    return wanted


def check(comm: Collectives, answer: Connection) -> None:
    torch.set_num_threads(1)
    for got, want in zip(exercise(comm), expected(comm.rank, comm.world), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-2 if got.dtype is torch.bfloat16 else 0, atol=0)
    answer.send("right")


def over_shared(rank: int, world: int, answer: Connection, group: SharedGroup, store: Path) -> None:
    check(SharedCollectives(group, rank, DEADLINE), answer)


def over_gloo(rank: int, world: int, answer: Connection, group: SharedGroup, store: Path) -> None:
    comm = DistributedCollectives.connect("gloo", store, rank, world, DEADLINE, torch.device("cpu"))
    check(comm, answer)
    comm.close()


@pytest.mark.parametrize(("kind", "world"), [(over_shared, 3), (over_gloo, 2)])
def test_every_rank_gets_the_right_values(tmp_path: Path, world: int, kind: Callable[..., None]):
    context = mp.get_context("spawn")
    group = SharedGroup(context, world, SLOT)
    pipes = [context.Pipe(duplex=False) for _ in range(world)]
    ranks = [
        context.Process(target=kind, args=(r, world, pipes[r][1], group, tmp_path / "store")) for r in range(world)
    ]
    for process in ranks:
        process.start()
    for process, (receive, send) in zip(ranks, pipes, strict=True):
        send.close()
        assert receive.poll(DEADLINE)
        assert receive.recv() == "right"
        process.join(DEADLINE)
        assert process.exitcode == 0


def test_a_missing_rank_is_named_within_the_bound():
    group = SharedGroup(mp.get_context("spawn"), 2, SLOT)
    with pytest.raises(CollectiveError, match=r"rank 0 waited .* for rank 1"):
        SharedCollectives(group, 0, 0.05).all_reduce(torch.ones(3))


def test_a_row_wider_than_a_slot_is_refused():
    group = SharedGroup(mp.get_context("spawn"), 2, SLOT)
    with pytest.raises(ValueError, match="a row of 2000 columns exceeds a slot of 4096 bytes"):
        SharedCollectives(group, 0, 0.05).gather_columns(torch.ones(1, 2000), (2000, 10))
