from __future__ import annotations

import pytest
import torch

from motley_engine.comm.threads import run_ranks


def test_collectives_agree_with_their_definitions():
    def work(comm):
        x = torch.full((2, comm.rank + 1), float(comm.rank + 1))
        total = comm.all_reduce(torch.tensor([float(comm.rank), 1.0]))
        return total, comm.gather_columns(x, (1, 2, 3)), comm.broadcast(torch.tensor([comm.rank]))

    results = run_ranks(3, work)
    assert all(torch.equal(total, torch.tensor([3.0, 3.0])) for total, _, _ in results)
    assert torch.equal(results[0][1], torch.tensor([[1.0, 2.0, 2.0, 3.0, 3.0, 3.0]] * 2))
    assert [gathered for _, gathered, _ in results[1:]] == [None, None]
    assert [sent.item() for _, _, sent in results] == [0, 0, 0]


def test_a_failing_rank_ends_the_others_and_its_error_is_raised():
    def work(comm):
        if comm.rank == 1:
            raise KeyError("rank 1")
        comm.all_reduce(torch.zeros(1))

    with pytest.raises(KeyError, match="rank 1"):
        run_ranks(3, work)


def test_widths_other_than_the_plan_are_refused():
    with pytest.raises(ValueError, match="the plan says"):
        run_ranks(2, lambda comm: comm.gather_columns(torch.zeros(1, 2), (2, 3)))
