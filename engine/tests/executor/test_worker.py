"""Workers on tiny models: the same answer by every route, over one rank and over uneven ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executor.routes import PROMPTS, assert_same, by_row, in_chunks, whole_prompts
from executor.tiny import GEMMA, LLAMA, Sequences, greedy, ints, settle

from motley_engine.comm.collectives import Alone, Collectives
from motley_engine.comm.threads import run_ranks
from motley_engine.config.resolve import Resolved
from motley_engine.executor.build import RankEngine, build_rank
from motley_engine.executor.runner import CpuLauncher, LocalRunner
from motley_engine.executor.step import SamplingPlan, StepKind, StepPlan, StepResult
from motley_engine.executor.wire import pack
from motley_engine.executor.worker import PlanMismatchError, Worker

CPU = torch.device("cpu")
TIMEOUT = 60.0
Script = Callable[[Callable[[StepPlan, SamplingPlan | None], StepResult]], list[StepResult]]


def build(resolved: Resolved, comm: Collectives) -> RankEngine:
    return build_rank(resolved, comm.rank, comm, CPU, lambda stage, done, total: None)


def run(resolved: Resolved, script: Script) -> list[StepResult]:
    """``script``'s results on rank 0 of ``resolved``, every rank a thread."""

    def work(comm: Collectives) -> list[StepResult]:
        worker = build(resolved, comm).worker
        launcher = CpuLauncher()
        runner = LocalRunner(worker, launcher, None, TIMEOUT, lambda seq, done: None)

        def step(plan: StepPlan, sampling: SamplingPlan | None) -> StepResult:
            return runner.submit(plan, sampling if comm.rank == 0 else None).result(TIMEOUT)

        results = script(step)
        runner.close()
        return results

    return [work(Alone())] if resolved.world == 1 else run_ranks(resolved.world, work)[:1]


def results(resolved: Resolved, script: Script) -> list[StepResult]:
    return run(resolved, script)[0]


@pytest.mark.parametrize("config", [LLAMA, GEMMA], ids=["llama", "gemma"])
def test_chunks_and_companions_change_nothing(tmp_path: Path, config: dict[str, Any]):
    resolved = settle(tmp_path, config)
    whole = by_row(results(resolved, whole_prompts), [[0, 3, 4]] * 13)
    parts = by_row(results(resolved, in_chunks), [[3, 4], [3, 4], *[[3, 4, 0]] * 11])
    assert_same(whole, parts)


@pytest.mark.parametrize(("config", "ratio"), [(LLAMA, "2,1"), (GEMMA, "1,2"), (LLAMA, "1,1,1")])
def test_uneven_ranks_give_the_answer_of_one(tmp_path: Path, config: dict[str, Any], ratio: str):
    even = len(set(ratio.split(","))) == 1
    cut = {"tp_size": ratio.count(",") + 1, "rank_tp_ratio": "" if even else ratio}
    alone = by_row(results(settle(tmp_path, config), whole_prompts), [[0, 3, 4]] * 13)
    split = by_row(results(settle(tmp_path, config, parallel=cut), whole_prompts), [[0, 3, 4]] * 13)
    assert_same(alone, split)


def test_scores_are_the_logprobs_of_the_next_tokens(tmp_path: Path):
    """Scoring a prompt in one step equals asking for each token's logprob one decode step at a time."""
    prompt = PROMPTS[4]

    def scored(step: Callable[..., StepResult]) -> list[StepResult]:
        rows = Sequences(page_size=4, columns=10)
        targets = {"score_targets": ints(prompt[1:]), "score_top": ints([2] * (len(prompt) - 1))}
        plan = rows.step({2: prompt}, sample=[], score=list(range(len(prompt) - 1)))
        return [step(plan, greedy(0, **targets))]

    def stepwise(step: Callable[..., StepResult]) -> list[StepResult]:
        rows = Sequences(page_size=4, columns=10)
        pairs = itertools.pairwise(prompt)
        return [step(rows.step({1: [token]}), greedy(1, asked={0: ints([following])})) for token, following in pairs]

    resolved = settle(tmp_path, LLAMA, "2,1")
    scores = results(resolved, scored)[0].scores
    assert scores is not None
    single = [result.logprobs.asked[0][0] for result in results(resolved, stepwise) if result.logprobs is not None]
    np.testing.assert_allclose(scores.chosen, single, atol=1e-4)
    assert scores.top_ids.shape == (len(prompt) - 1, 2)


def test_a_flush_zeroes_every_page_that_was_used(tmp_path: Path):
    engine = build(settle(tmp_path, GEMMA), Alone())
    rows = Sequences(page_size=4, columns=10)
    engine.worker.step(pack(rows.step(PROMPTS)), greedy(3))
    layers = engine.worker._pools.layers
    assert all(k.count_nonzero() for k, _ in layers)
    engine.worker.step(pack(StepPlan(9, StepKind.FLUSH)), None)
    assert not any(k.count_nonzero() or v.count_nonzero() for k, v in layers)


def test_differing_plans_are_named_before_the_first_collective(tmp_path: Path):
    resolved = settle(tmp_path, LLAMA, "2,1", runtime={"debug_digest": True})

    def work(comm: Collectives) -> str:
        worker = build(resolved, comm).worker
        rows = Sequences(page_size=4, columns=10)
        plan = pack(rows.step({0: [5, 6, 7][: 2 + comm.rank]}))
        if comm.rank == 0:
            worker._agree(plan)
            return ""
        with pytest.raises(PlanMismatchError, match=r"step plan 1: digest .* on rank 1, .* on rank 0") as caught:
            worker._agree(plan)
        return str(caught.value)

    assert "rank 1" in run_ranks(2, work)[1]


def test_a_failing_step_surfaces_in_its_result(tmp_path: Path):
    engine = build(settle(tmp_path, LLAMA), Alone())
    runner = LocalRunner(engine.worker, CpuLauncher(), None, TIMEOUT, lambda seq, done: None)
    pending = runner.submit(Sequences(4, 10).step({0: [1, 2]}), None)
    with pytest.raises(ValueError, match="1 sequences to sample, but no sampling plan"):
        pending.result(TIMEOUT)
    runner.close()


def test_results_come_in_order_and_steps_are_marked(tmp_path: Path):
    engine = build(settle(tmp_path, LLAMA), Alone())
    marks: list[tuple[int, bool]] = []
    runner = LocalRunner(engine.worker, CpuLauncher(), None, TIMEOUT, lambda seq, done: marks.append((seq, done)))
    rows = Sequences(4, 10)
    pending = [runner.submit(rows.step({0: [1, 2]}), greedy(1)), runner.submit(rows.step({0: [-1]}), greedy(1))]
    assert [step.result(TIMEOUT).seq for step in pending] == [1, 2]
    assert marks == [(1, False), (1, True), (2, False), (2, True)]
    runner.close()


def test_worker_is_built_for_its_rank(tmp_path: Path):
    """Heads 4+2 of 6 and the table's line of each rank."""
    resolved = settle(tmp_path, LLAMA, "2,1")
    engines = run_ranks(2, lambda comm: build(resolved, comm))
    assert [engine.row.rank for engine in engines] == [0, 1]
    assert engines[0].geometry == engines[1].geometry
    assert engines[0].row.kv_pool == 2 * engines[1].row.kv_pool
    assert isinstance(engines[0].worker, Worker)
