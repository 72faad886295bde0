"""The same three sequences by different routes, and how to compare what came out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from executor.tiny import Sequences, greedy

from motley_engine.executor.step import StepResult

Seen = dict[int, list[tuple[int, np.ndarray]]]
PROMPTS = {0: list(range(10, 33)), 3: [7], 4: list(range(100, 111))}


def whole_prompts(step: Callable[..., StepResult]) -> list[StepResult]:
    """Prefill three prompts at once, then twelve decode steps that name their tokens by row."""
    rows = Sequences(page_size=4, columns=10)
    found = [step(rows.step(PROMPTS), greedy(3))]
    found += [step(rows.step({row: [-1 - row] for row in PROMPTS}), greedy(3)) for _ in range(12)]
    return found


def in_chunks(step: Callable[..., StepResult]) -> list[StepResult]:
    """The same tokens, with row 0's prompt in chunks beside the others' decode steps."""
    rows = Sequences(page_size=4, columns=10)
    first = step(rows.step({3: PROMPTS[3], 4: PROMPTS[4], 0: PROMPTS[0][:5]}, sample=[3, 4]), greedy(2))
    second = step(rows.step({0: PROMPTS[0][5:18], 3: [-4], 4: [-5]}, sample=[3, 4]), greedy(2))
    third = step(rows.step({3: [-4], 4: [-5], 0: PROMPTS[0][18:]}), greedy(3))
    return [first, second, third, *(step(rows.step({3: [-4], 4: [-5], 0: [-1]}), greedy(3)) for _ in range(10))]


def by_row(found: list[StepResult], orders: list[list[int]]) -> Seen:
    """(id, five best logprobs) of every row, in order."""
    seen: Seen = {}
    for result, rows in zip(found, orders, strict=True):
        assert result.logprobs is not None
        for place, row in enumerate(rows):
            values = (int(result.token_ids[place]), result.logprobs.top_values[place])
            seen.setdefault(row, []).append(values)
    return seen


def assert_same(one: Seen, other: Seen, atol: float = 1e-4) -> None:
    for row, values in one.items():
        for (token, best), (other_token, other_best) in zip(values, other[row], strict=False):
            np.testing.assert_allclose(best, other_best, atol=atol)
            assert token == other_token
