"""The agreement measure on hand-made answers: equal sides agree, noise shows in its size, mismatches are refused."""

from __future__ import annotations

import json
import random

import pytest

from motley_bench.agree import Agreement, compare, random_prompts
from motley_bench.shapes import SHAPES, write_config


def answer(values: list[list[float]], top: list[int]) -> dict:
    meta = {
        "input_token_ids_logprobs": [None, *[[[v, i, None] for i, v in enumerate(row)] for row in values]],
        "input_top_logprobs": [None, *[[[0.0, t, None]] for t in top]],
        "output_token_ids_logprobs": [],
        "output_top_logprobs": [],
    }
    return {"meta_info": meta}


def sides(noise: float) -> Agreement:
    rng = random.Random(3)
    rows = [[rng.gauss(0, 2) for _ in range(64)] for _ in range(50)]
    moved = [[v + rng.gauss(0, noise) for v in row] for row in rows]
    return compare([answer(rows, [1] * 50)], [answer(moved, [1] * 49 + [2])])


def test_equal_sides_have_no_error():
    assert sides(0.0).rms_ratio == 0.0
    assert sides(0.0).top1_share == pytest.approx(49 / 50)


def test_noise_is_measured_in_units_of_the_reference_spread():
    # 3,200 gaussian values: the RMS estimate is within 5 % with overwhelming probability; the seed is fixed
    assert sides(0.02).rms_ratio == pytest.approx(0.01, rel=0.05)


def test_different_positions_are_refused():
    rows = [[0.0, 1.0]]
    with pytest.raises(ValueError, match="different positions"):
        compare([answer(rows, [1])], [answer(rows * 2, [1, 1])])


def test_shapes_are_written_with_the_asked_layers(tmp_path):
    write_config("qwen3-8b", tmp_path, layers=2)
    assert json.loads((tmp_path / "config.json").read_text())["num_hidden_layers"] == 2
    assert SHAPES["qwen3-8b"]["num_hidden_layers"] == 36
    with pytest.raises(ValueError, match=r"qwen3-0\.6b"):
        write_config("qwen9", tmp_path)


def test_prompts_are_reproducible():
    assert random_prompts(100, 2, 5, 1) == random_prompts(100, 2, 5, 1)
