"""The executor on a GPU against the same model on the CPU: graphs or not, probe, sampler, budget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executor.routes import assert_same, by_row, in_chunks, whole_prompts
from executor.tiny import GEMMA, LLAMA, settle

from motley_engine.comm.collectives import Alone
from motley_engine.config.resolve import Resolved
from motley_engine.executor.build import RankEngine, build_rank
from motley_engine.executor.graphs import buckets
from motley_engine.executor.runner import CpuLauncher, CudaLauncher, LocalRunner
from motley_engine.executor.step import SamplingPlan, StepPlan, StepResult
from motley_engine.launch.devices import open_device
from motley_engine.sampling.choose import sample
from motley_planner.memory import MIB

TIMEOUT = 120.0
CARD = {"device": "cuda", "rank_gpu_id": ("0",), "rank_gpu_memory_mib": (4096,)}


def test_buckets_reach_the_largest_batch():
    assert buckets(1) == (1,)
    assert buckets(4) == (1, 2, 4)
    assert buckets(20) == (1, 2, 4, 8, 16, 20)
    assert buckets(32) == (1, 2, 4, 8, 16, 24, 32)


def build(resolved: Resolved) -> RankEngine:
    device = open_device(resolved, 0)
    return build_rank(resolved, 0, Alone(), device, lambda stage, done, total: None)


def steps(engine: RankEngine, script: Callable[..., list[StepResult]]) -> list[StepResult]:
    device = engine.worker.device
    launcher = CudaLauncher(device) if device.type == "cuda" else CpuLauncher()
    runner = LocalRunner(engine.worker, launcher, None, TIMEOUT, lambda seq, done: None)

    def step(plan: StepPlan, sampling: SamplingPlan | None) -> StepResult:
        return runner.submit(plan, sampling).result(TIMEOUT)

    found = script(step)
    runner.close()
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "eager"])
@pytest.mark.parametrize("config", [LLAMA, GEMMA], ids=["llama", "gemma"])
def test_a_gpu_gives_the_answer_of_the_cpu(tmp_path: Path, config: dict[str, Any], graphs: bool):
    (tmp_path / "cpu").mkdir()
    cpu = build(settle(tmp_path / "cpu", config))
    gpu = build(settle(tmp_path, config, parallel=CARD, runtime={"disable_cuda_graph": not graphs}))
    assert (gpu.worker.graphs is not None) == graphs
    orders = [[0, 3, 4]] * 13
    truth = by_row(steps(cpu, whole_prompts), orders)
    # float32 matrix products may differ in the last bits only: TF32 is off by default
    assert_same(truth, by_row(steps(gpu, whole_prompts), orders), atol=1e-3)
    chunk_orders = [[3, 4], [3, 4], *[[3, 4, 0]] * 11]
    assert_same(truth, by_row(steps(gpu, in_chunks), chunk_orders), atol=1e-3)


@pytest.mark.gpu
def test_a_rank_keeps_within_its_budget(tmp_path: Path):
    sizes = {"memory": {"max_total_tokens": None}, "model": {"dtype": "bfloat16"}}
    free_before = torch.cuda.mem_get_info()[0]
    engine = build(settle(tmp_path, LLAMA, parallel=CARD, **sizes))
    steps(engine, whole_prompts)
    used = free_before - torch.cuda.mem_get_info()[0]
    row = engine.row
    print({key: value // MIB for key, value in vars_of(row).items()}, "used", used // MIB)
    assert used <= 4096 * MIB
    assert row.kv_pool > 1024 * MIB
    assert sum((row.weights, row.graphs, row.peak, row.work, row.state, row.kv_pool, row.left)) == row.budget


def vars_of(row: Any) -> dict[str, int]:
    names = ("budget", "weights", "graphs", "peak", "work", "state", "kv_pool", "left")
    return {name: getattr(row, name) for name in names}


@pytest.mark.gpu
def test_the_sampler_draws_alike_on_both_devices():
    rng = np.random.default_rng(0)
    rows, vocab = 400, 5000
    logits = torch.from_numpy(rng.normal(0, 3, (rows, vocab))).float()
    columns = (
        rng.choice([0.5, 1.0, 2.0], rows).astype(np.float32),
        rng.choice([-1, 5, 900, 2000], rows).astype(np.int32),
        rng.choice([1.0, 0.9, 0.3], rows).astype(np.float32),
        rng.choice([0.0, 0.1], rows).astype(np.float32),
        rng.random(rows, np.float32),
    )
    same = sample(logits, *columns) == sample(logits.cuda(), *columns).cpu()
    # a draw within rounding of a border may fall to either side
    assert same.sum() >= rows - 2
