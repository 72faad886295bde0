"""Inverse-CDF sampling: equal to the plain reference, independent of the batch, and distributed as it should be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling.reference import draw, kept

from motley_engine.sampling.choose import sample

VOCAB = 3000


class Params:
    """Random rows of logits with random parameters; every filter is off in some rows."""

    def __init__(self, seed: int, rows: int, vocab: int = VOCAB) -> None:
        rng = np.random.default_rng(seed)
        self.logits = torch.from_numpy(rng.normal(0, rng.choice([0.1, 1, 4], (rows, 1)), (rows, vocab))).float()
        self.temperature = rng.choice([0.01, 0.7, 1.0, 1.5, 50.0], rows).astype(np.float32)
        self.top_k = rng.choice([-1, 0, 1, 5, 64, 65, 900, 1025, vocab - 1, vocab, vocab + 7], rows).astype(np.int32)
        self.top_p = rng.choice([1.0, 0.999, 0.95, 0.5, 1e-6], rows).astype(np.float32)
        self.min_p = rng.choice([0.0, 0.0, 0.05, 0.9], rows).astype(np.float32)
        self.u = rng.random(rows, np.float32)

    def ids(self, rows: slice | list[int] = slice(None)) -> list[int]:
        columns = (self.temperature, self.top_k, self.top_p, self.min_p, self.u)
        return sample(self.logits[rows], *(column[rows] for column in columns)).tolist()

    def mass(self, row: int) -> np.ndarray:
        logits = self.logits[row].double().numpy()
        values = (self.temperature, self.top_k, self.top_p, self.min_p)
        return kept(logits, *(column[row].item() for column in values))


@pytest.mark.parametrize("seed", range(4))
def test_every_row_agrees_with_the_reference(seed: int):
    params = Params(seed, 60)
    for row, token in enumerate(params.ids()):
        mass = params.mass(row)
        wanted = draw(mass, float(params.u[row]))
        if token == wanted:
            continue
        # float32 probabilities may move a border by a few ulp: then u must lie within 1e-5 of it
        cdf = mass.cumsum() / mass.sum()
        low, high = sorted((token, wanted))
        assert np.abs(cdf[low:high] - params.u[row]).min() < 1e-5, (row, token, wanted)


@given(st.integers(0, 2**32 - 1), st.data())
@settings(max_examples=40, deadline=None)
def test_a_row_does_not_depend_on_its_batch(seed: int, data: st.DataObject):
    params = Params(seed, 16, vocab=1500)
    together = params.ids()
    rows = data.draw(st.lists(st.integers(0, 15), min_size=1, max_size=16, unique=True))
    assert params.ids(rows) == [together[row] for row in rows]


def test_ties_are_kept_whole():
    logits = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0]]).repeat(200, 1)
    u = ((np.arange(200) + 0.5) / 200).astype(np.float32)
    ones = np.ones(200, np.float32)
    ids = sample(logits, ones, np.full(200, 2, np.int32), ones, 0 * ones, u)
    assert set(ids.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("u", [0.0, np.nextafter(np.float32(1), np.float32(0))])
def test_the_ends_of_the_unit_interval_stay_inside_the_kept_ids(u: float):
    logits = torch.full((1, VOCAB), -torch.inf)
    logits[0, [7, 9]] = torch.tensor([1.0, 1.0])
    one = np.ones(1, np.float32)
    token = sample(logits, one, np.full(1, -1, np.int32), one, 0 * one, np.full(1, u, np.float32))
    assert token.item() == (7 if u == 0 else 9)


def test_draws_follow_the_distribution():
    """Chi-square over 24 filtered ids, 40,000 draws, fixed seed; chance of a false alarm on another seed 1e-4."""
    draws, vocab = 40_000, 40
    rng = np.random.default_rng(0)
    row = rng.normal(0, 1, vocab)
    logits = torch.from_numpy(np.tile(row, (draws, 1))).float()
    ones = np.ones(draws, np.float32)
    ids = sample(logits, 0.8 * ones, np.full(draws, 24, np.int32), ones, 0 * ones, rng.random(draws, np.float32))
    mass = kept(row, 0.8, 24, 1.0, 0.0)
    expected = draws * mass / mass.sum()
    seen = np.bincount(ids.numpy(), minlength=vocab)
    assert (seen[expected == 0] == 0).all()
    inside = expected > 0
    statistic = ((seen - expected)[inside] ** 2 / expected[inside]).sum()
    # 0.9999 quantile of chi-square with 23 degrees of freedom
    assert statistic < 57.07
