"""Turns samples into figures: throughput over the whole run, percentiles of TTFT, TPOT and latency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from motley_bench.clients import Sample
from motley_bench.scenarios import Scenario


def percentile(values: Sequence[float], q: float) -> float:
    """Linear interpolation between closest ranks, ``q`` in [0, 100]. ValueError on no values."""
    if not values:
        raise ValueError("percentile of no values")
    ordered = sorted(values)
    position = (len(ordered) - 1) * q / 100
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {f"p{q}": round(percentile(values, q) * 1000, 3) for q in (20, 50, 80, 90, 99)} if values else {}


def summarise(scenario: Scenario, samples: Sequence[Sample]) -> dict[str, Any]:
    """One JSON-ready row: tokens per second, times in milliseconds, errors with their first text."""
    good = [s for s in samples if not s.error]
    bad = [s for s in samples if s.error]
    row: dict[str, Any] = {
        "scenario": scenario.name,
        "requests": len(samples),
        "errors": len(bad),
        "first_error": bad[0].error if bad else "",
        "input_len": scenario.input_len,
        "output_len": scenario.output_len,
        "concurrency": scenario.concurrency,
        "rate": scenario.rate,
    }
    if not good:
        return row
    seconds = max(s.ended for s in good) - min(s.started for s in good)
    output = sum(s.output_tokens for s in good)
    prompt = sum(s.prompt_tokens for s in good)
    return row | {
        "seconds": round(seconds, 3),
        "output_tokens_per_second": round(output / seconds, 1),
        "input_tokens_per_second": round(prompt / seconds, 1),
        "cached_share": round(sum(s.cached_tokens for s in good) / prompt, 4) if prompt else 0.0,
        "ttft_ms": _spread([s.ttft for s in good]),
        "tpot_ms": _spread([t for s in good if (t := s.tpot) is not None]),
        "latency_ms": _spread([s.ended - s.started for s in good]),
    }
