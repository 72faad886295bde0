"""From measured bytes to one geometry for all ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from executor.tiny import GEMMA, LLAMA, settle

from motley_engine.comm.collectives import Collectives
from motley_engine.comm.threads import run_ranks
from motley_engine.executor.memory import (
    Limits,
    Measured,
    MemoryShortageError,
    agree,
    check_pool,
    geometry,
    measured_memory,
    memory_row,
)
from motley_planner.memory import MIB, Pools, RankMemory, pools_of, replica_memory

CPU = torch.device("cpu")


def agreed(pools: list[Pools], limits: Limits, page: int = 4) -> tuple[Pools, int]:
    def work(comm: Collectives) -> tuple[Pools, int]:
        return agree(comm, pools[comm.rank], limits, page, CPU)

    answers = run_ranks(len(pools), work)
    assert all(answer == answers[0] for answer in answers)
    return answers[0]


def test_the_poorest_rank_sets_the_pool():
    pools = [Pools(800, 60), Pools(400, 80), Pools(600, 40)]
    assert agreed(pools, Limits(None, None)) == (Pools(400, 40), 1)


@pytest.mark.parametrize(("limits", "full"), [(Limits(101, None), 100), (Limits(None, 203), 200), (Limits(2, 9), 4)])
def test_limits_cut_to_whole_pages(limits: Limits, full: int):
    assert agreed([Pools(800, 300), Pools(900, 300)], limits)[0] == Pools(full, min(full, 300))


def rank_memory(tmp_path: Path) -> RankMemory:
    resolved = settle(tmp_path, LLAMA)
    budgets = [rank.budget_bytes for rank in resolved.replica.ranks]
    memory = replica_memory(resolved.model.facts, resolved.partition, resolved.serving, budgets, "cpu")
    return memory.ranks[0]


def test_measured_bytes_replace_the_priors(tmp_path: Path):
    planned = rank_memory(tmp_path)
    measured = Measured(weights=planned.weights + 5, state=7, peak=11 * MIB, graphs=13 * MIB, work=17 * MIB)
    memory = measured_memory(planned, measured)
    assert memory.weights == planned.weights + 5
    assert memory.state == planned.state + 7
    assert memory.fixed == memory.weights + memory.state + 41 * MIB
    assert memory.free == planned.budget - memory.fixed
    kept = measured_memory(planned, Measured(weights=planned.weights, state=0))
    assert kept == planned


def test_the_row_adds_up(tmp_path: Path):
    memory = rank_memory(tmp_path)
    row = memory_row(1, "CPU-1", memory, Pools(500, 0), kv_pool=3 * MIB, limiting=1)
    parts = (row.weights, row.graphs, row.peak, row.work, row.state, row.kv_pool, row.left)
    assert sum(parts) == row.budget
    assert row.limits
    assert row.in_mib()["kv_pool"] == 3
    assert row.in_mib()["rows"] == 500


def test_a_budget_without_room_is_refused_with_its_largest_items(tmp_path: Path):
    resolved = settle(tmp_path, LLAMA)
    memory = replace(rank_memory(tmp_path), activations=300 * MIB)
    with pytest.raises(MemoryShortageError, match=r"rank 1's budget of 256 MiB leaves -\d+ MiB .*activations 300 MiB"):
        check_pool(1, memory, resolved.model.facts, resolved.serving)


def test_geometry_has_the_pools_that_the_model_needs(tmp_path: Path):
    resolved = settle(tmp_path, GEMMA)
    facts, serving = resolved.model.facts, resolved.serving
    both = geometry(Pools(400, 120), facts, serving, 256, 300)
    assert (both.full_pages, both.window_pages, both.window) == (101, 31, 8)
    sliding = replace(facts, layer_types=("sliding",) * 4)
    only = geometry(Pools(400, 0), sliding, serving, 256, 300)
    assert (only.full_pages, only.window_pages) == (0, 101)
    full = replace(facts, layer_types=("full",) * 4)
    assert (geometry(Pools(400, 0), full, serving, 256, 300)).window_pages == 0
    assert both.max_running == serving.max_running


def test_what_a_rank_holds_alone_comes_from_the_planner(tmp_path: Path):
    resolved = settle(tmp_path, LLAMA)
    memory = rank_memory(tmp_path)
    own = check_pool(0, memory, resolved.model.facts, resolved.serving)
    assert own == pools_of(resolved.model.facts, resolved.serving, memory)
