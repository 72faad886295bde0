"""``motley bench agree``: do two ways of running one model give the same logits?

Both servers hold the same weights (random ones depend only on seed, tensor and element, never on the split or device).
Each scores the same prompts; what is compared are log-probabilities of a fixed set of token ids at every position.
"""

from __future__ import annotations

import json
import math
import random
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from motley_bench.host import Serve


@dataclass(frozen=True, slots=True)
class Agreement:
    """``rms_ratio`` = RMS difference / standard deviation of the reference's values; ``worst`` in the same unit."""

    positions: int
    values: int
    rms_ratio: float
    worst: float
    top1_share: float

    def line(self, label: str, limit: float) -> str:
        verdict = "agrees" if self.rms_ratio <= limit else "DIFFERS"
        return (
            f"{label}: {verdict}: RMS error ratio {self.rms_ratio:.5f} (limit {limit}), worst {self.worst:.4f} sigma, "
            f"top-1 equal at {self.top1_share:.1%} of {self.positions} positions"
        )


def random_prompts(vocab_size: int, count: int, length: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(vocab_size) for _ in range(length)] for _ in range(count)]


def score(flags: Sequence[str], prompts: list[list[int]], probes: list[int]) -> list[dict[str, Any]]:
    """Answers of one server: logprobs at every prompt position and one generated token, for each prompt."""
    with Serve(flags) as server:
        print(f"ready in {server.seconds:.1f} s: {' '.join(flags)}", flush=True)
        body = {
            "input_ids": prompts,
            "sampling_params": {"temperature": 0, "max_new_tokens": 1, "ignore_eos": True},
            "return_logprob": True,
            "logprob_start_len": 0,
            "top_logprobs_num": 1,
            "token_ids_logprob": probes,
        }
        request = urllib.request.Request(
            f"{server.url}/generate", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=500) as response:
            answers: list[dict[str, Any]] = json.load(response)
        return answers


def _values(answers: list[dict[str, Any]]) -> tuple[list[list[float]], list[int]]:
    probed: list[list[float]] = []
    top: list[int] = []
    for answer in answers:
        meta = answer["meta_info"]
        for field in ("input", "output"):
            asked = [row for row in meta[f"{field}_token_ids_logprobs"] if row]
            best = [row for row in meta[f"{field}_top_logprobs"] if row]
            probed += [[float(entry[0]) for entry in row] for row in asked]
            top += [int(row[0][1]) for row in best]
    return probed, top


def compare(reference: list[dict[str, Any]], other: list[dict[str, Any]]) -> Agreement:
    """ValueError when the two sides scored different positions."""
    want, want_top = _values(reference)
    got, got_top = _values(other)
    if [len(r) for r in want] != [len(r) for r in got] or len(want_top) != len(got_top) or not want:
        raise ValueError(f"the sides scored different positions: {len(want)} and {len(got)}")
    flat = [(a, b) for x, y in zip(want, got, strict=True) for a, b in zip(x, y, strict=True)]
    mean = math.fsum(a for a, _ in flat) / len(flat)
    sigma = math.sqrt(math.fsum((a - mean) ** 2 for a, _ in flat) / len(flat))
    rms = math.sqrt(math.fsum((a - b) ** 2 for a, b in flat) / len(flat))
    same = sum(a == b for a, b in zip(want_top, got_top, strict=True))
    return Agreement(
        len(want_top), len(flat), rms / sigma, max(abs(a - b) for a, b in flat) / sigma, same / len(want_top)
    )
