"""Figures from hand-made samples, against values worked out by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley_bench.clients import Sample
from motley_bench.load import prompts
from motley_bench.report import percentile, summarise
from motley_bench.scenarios import SCENARIOS, Scenario
from motley_bench.serve import medians, scaled


def sample(started: float, times: list[float], prompt: int = 10, cached: int = 0) -> Sample:
    arrivals = [(t, i + 1) for i, t in enumerate(times)]
    return Sample(started, arrivals, prompt_tokens=prompt, cached_tokens=cached, output_tokens=len(times))


def test_throughput_counts_the_whole_span_and_percentiles_are_milliseconds():
    rows = [sample(0.0, [1.0, 2.0, 3.0]), sample(1.0, [1.5, 2.0, 4.0], cached=5)]
    row = summarise(Scenario("x", 2, 2, 10, 3), rows)
    assert row["output_tokens_per_second"] == pytest.approx(6 / 4)
    assert row["input_tokens_per_second"] == pytest.approx(20 / 4)
    assert row["cached_share"] == pytest.approx(5 / 20)
    assert row["ttft_ms"]["p50"] == pytest.approx(750)
    assert row["tpot_ms"]["p50"] == pytest.approx((1000 + 1250) / 2)


def test_failed_requests_are_counted_and_named_not_averaged():
    broken = Sample(0.0, error="HTTP 503: full")
    row = summarise(Scenario("x", 2, 2, 10, 3), [broken, sample(0.0, [1.0, 2.0, 3.0])])
    assert (row["errors"], row["first_error"]) == (1, "HTTP 503: full")
    assert row["output_tokens_per_second"] == pytest.approx(1.0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 100))
def test_percentile_lies_between_the_extremes(values, q):
    assert min(values) <= percentile(values, q) <= max(values)


def test_prompts_repeat_with_the_seed_and_share_their_prefix():
    shape = Scenario("x", 1, 1, 20, 1, shared_len=15)
    first, again = (list(itertools.islice(prompts(shape, 1000, 7), 3)) for _ in range(2))
    assert first == again
    assert len({tuple(p[:15]) for p in first}) == 1
    assert len({tuple(p[15:]) for p in first}) == 3
    assert all(len(p) == 20 for p in first)


def test_scaling_keeps_a_request_for_every_stream():
    assert scaled(SCENARIOS["c64"], 0.01).requests == 64


def test_medians_are_taken_per_scenario_and_target():
    def run(speed: float, target: str) -> dict[str, object]:
        row = summarise(Scenario("x", 1, 1, 10, 2), [sample(0.0, [1.0, 2.0])])
        return row | {"target": target, "output_tokens_per_second": speed}

    rows = medians([run(1, "a"), run(5, "a"), run(3, "a"), run(9, "b")])
    assert {r["target"]: r["output_tokens_per_second"] for r in rows} == {"a": 3, "b": 9}
