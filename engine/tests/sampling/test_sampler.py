"""The sampler as the executor drives it: row state across steps, bias, blocked ids, logprobs and scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sampling.reference import draw, kept, log_softmax, penalised

from motley_engine.executor.step import RowSampling, SamplingPlan
from motley_engine.sampling import sampler as module
from motley_engine.sampling.sampler import Sampler

CPU = torch.device("cpu")
VOCAB = 300


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def plan(rows: int, **changes: Any) -> SamplingPlan:
    """Greedy for every row unless changed."""
    fields: dict[str, Any] = {
        "temperature": np.zeros(rows, np.float32),
        "top_k": np.full(rows, -1, np.int32),
        "top_p": np.ones(rows, np.float32),
        "min_p": np.zeros(rows, np.float32),
        "uniform": np.zeros(rows, np.float32),
        "state": np.zeros(rows, np.bool_),
        "top_logprobs": np.full(rows, -1, np.int32),
    }
    return SamplingPlan(**(fields | changes))


def row_state(row: int, rng: np.random.Generator) -> RowSampling:
    return RowSampling(
        row=row,
        prompt=rng.integers(0, VOCAB, 40).astype(np.int32),
        output=rng.integers(0, 30, 12).astype(np.int32),
        repetition=float(rng.choice([1.0, 1.3])),
        frequency=float(rng.choice([0.0, 0.4, -0.2])),
        presence=float(rng.choice([0.0, 0.7])),
        bias_ids=rng.choice(VOCAB, 3, replace=False).astype(np.int32),
        bias_values=rng.normal(0, 3, 3).astype(np.float32),
    )


def test_greedy_rows_take_the_largest_logit():
    logits = torch.randn(5, VOCAB, generator=torch.Generator().manual_seed(0))
    ids, logprobs = Sampler(8, VOCAB, CPU).ids(logits, plan(5), ints(0, 1, 2, 3, 4))
    assert ids.tolist() == logits.argmax(1).tolist()
    assert logprobs is None


def test_greedy_and_drawn_rows_mix():
    logits = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(1))
    mixed = plan(
        4,
        temperature=np.array([0.0, 1.0, 2.0, 1.0], np.float32),
        top_k=ints(-1, 1, 20, -1),
        uniform=np.array([0.5, 0.99, 0.3, 0.7], np.float32),
    )
    ids, _ = Sampler(8, VOCAB, CPU).ids(logits, mixed, ints(0, 1, 2, 3))
    assert ids[:2].tolist() == logits[:2].argmax(1).tolist()
    for row, k in ((2, 20), (3, -1)):
        mass = kept(logits[row].double().numpy(), float(mixed.temperature[row]), k, 1.0, 0.0)
        assert ids[row] == draw(mass, float(mixed.uniform[row]))


def test_penalties_follow_the_tokens_that_each_row_produces():
    """Ten greedy steps of three rows; the reference keeps its own lists of what each row produced."""
    rng = np.random.default_rng(3)
    sampler = Sampler(8, VOCAB, CPU)
    rows = ints(6, 0, 3)
    states = {row: row_state(row, rng) for row in (6, 3)}
    outputs = {row: states[row].output.tolist() for row in states}
    for step in range(10):
        logits = torch.from_numpy(rng.normal(0, 1, (3, VOCAB))).float()
        before = logits.clone()
        step_plan = plan(3, state=np.array([True, False, True]), new_rows=list(states.values()) if step == 0 else [])
        ids, _ = sampler.ids(logits, step_plan, rows)
        assert torch.equal(logits, before)
        assert ids[1] == logits[1].argmax()
        for place, row in ((0, 6), (2, 3)):
            state = states[row]
            bias = dict(zip(state.bias_ids.tolist(), state.bias_values.tolist(), strict=True))
            truth = penalised(
                logits[place].double().numpy(),
                state.prompt.tolist(),
                outputs[row],
                state.repetition,
                state.frequency,
                state.presence,
                bias,
            )
            assert ids[place] == truth.argmax()
            outputs[row].append(int(ids[place]))


def test_a_reused_row_forgets_its_last_request():
    rng = np.random.default_rng(4)
    sampler = Sampler(2, VOCAB, CPU)
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(2))
    with_state = {"state": np.array([True])}
    sampler.ids(logits, plan(1, **with_state, new_rows=[row_state(1, rng)]), ints(1))
    empty, none = ints(), np.empty(0, np.float32)
    fresh = RowSampling(
        1, prompt=empty, output=empty, repetition=1.5, frequency=1, presence=1, bias_ids=empty, bias_values=none
    )
    ids, _ = sampler.ids(logits, plan(1, **with_state, new_rows=[fresh]), ints(1))
    assert ids.item() == logits.argmax()


def test_blocked_ids_are_never_chosen():
    logits = torch.zeros(2, VOCAB)
    logits[:, 5] = 9.0
    logits[:, 6] = 8.0
    blocked = np.array([[0, 5], [1, 6]], np.int32)
    for temperature in (0.0, 0.1):
        both = plan(
            2, uniform=np.full(2, 0.5, np.float32), temperature=np.full(2, temperature, np.float32), blocked=blocked
        )
        ids, _ = Sampler(2, VOCAB, CPU).ids(logits, both, ints(0, 1))
        assert ids.tolist() == [6, 5]


def test_logprobs_are_of_the_raw_logits():
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(5))
    wanted = plan(
        3,
        temperature=np.array([0, 0.1, 0], np.float32),
        blocked=np.array([[0, int(logits[0].argmax())]], np.int32),
        top_logprobs=ints(2, -1, 5),
        asked={0: ints(7, 8), 2: ints(9)},
    )
    ids, found = Sampler(4, VOCAB, CPU).ids(logits, wanted, ints(0, 1, 2))
    assert found is not None
    host = found.on_host(found.tensors())
    truth = [log_softmax(row) for row in logits.double().numpy()]
    for row in range(3):
        assert host.chosen[row] == pytest.approx(truth[row][ids[row]], abs=1e-5)
        best = np.argsort(-truth[row])[:5]
        assert host.top_ids[row].tolist() == best.tolist()
        np.testing.assert_allclose(host.top_values[row], truth[row][best], atol=1e-5)
    np.testing.assert_allclose(host.asked[0], truth[0][[7, 8]], atol=1e-5)
    np.testing.assert_allclose(host.asked[2], truth[2][[9]], atol=1e-5)
    assert set(host.asked) == {0, 2}


def test_scores_in_chunks_equal_scores_at_once(monkeypatch: pytest.MonkeyPatch):
    logits = torch.randn(11, VOCAB, generator=torch.Generator().manual_seed(6))
    rng = np.random.default_rng(7)
    scored = plan(
        0,
        score_targets=rng.integers(0, VOCAB, 11).astype(np.int32),
        score_top=ints(*[-1] * 5, 3, *[0] * 5),
        score_asked={1: ints(4), 4: ints(1, 2), 10: ints(3)},
    )
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 4 * VOCAB)
    asked_for: list[tuple[int, int]] = []

    def part(start: int, stop: int) -> torch.Tensor:
        asked_for.append((start, stop))
        return logits[start:stop]

    found = Sampler(1, VOCAB, CPU).scores(11, part, scored)
    assert asked_for == [(0, 4), (4, 8), (8, 11)]
    host = found.on_host(found.tensors())
    truth = [log_softmax(row) for row in logits.double().numpy()]
    np.testing.assert_allclose(host.chosen, [truth[i][t] for i, t in enumerate(scored.score_targets)], atol=1e-5)
    assert host.top_ids.shape == (11, 3)
    assert host.top_ids[7].tolist() == np.argsort(-truth[7])[:3].tolist()
    for position, ids in scored.score_asked.items():
        np.testing.assert_allclose(host.asked[position], truth[position][ids], atol=1e-5)


def test_many_drawn_rows_are_handled_in_bounded_parts(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(8)
    logits = torch.from_numpy(rng.normal(0, 1, (9, VOCAB))).float()
    drawn = plan(9, temperature=np.ones(9, np.float32), uniform=rng.random(9, np.float32))
    rows = np.arange(9, dtype=np.int32)
    at_once, _ = Sampler(9, VOCAB, CPU).ids(logits, drawn, rows)
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 2 * VOCAB)
    in_parts, _ = Sampler(9, VOCAB, CPU).ids(logits, drawn, rows)
    assert at_once.tolist() == in_parts.tolist()
