"""The sampler's numbers: uniform, reproducible, and independent of the batch."""

from __future__ import annotations

import numpy as np

from motley_engine.scheduler.randomness import uniform


def test_numbers_depend_on_seed_and_position_alone():
    seeds, positions = np.array([1, 2, 2**64 - 1], np.uint64), np.array([0, 5, 9])
    together = uniform(seeds, positions)
    alone = [uniform(seeds[i : i + 1], positions[i : i + 1])[0] for i in range(3)]
    assert together.tolist() == alone
    assert together.dtype == np.float32


def test_numbers_are_uniform_over_seeds_and_over_positions():
    """Chi-squared over 64 bins, 63 degrees of freedom: above 125 with a chance below 1e-5 for good numbers."""
    count = 64_000
    ramp, zeros = np.arange(count), np.zeros(count, np.int64)
    for numbers in (uniform(ramp.astype(np.uint64), zeros), uniform(zeros.astype(np.uint64), ramp)):
        assert numbers.min() >= 0
        assert numbers.max() < 1
        bins = np.bincount((numbers * 64).astype(int), minlength=64)
        assert ((bins - count / 64) ** 2 / (count / 64)).sum() < 125


def test_neighbouring_seeds_and_positions_do_not_repeat_each_other():
    seeds = np.repeat(np.arange(100, dtype=np.uint64), 100)
    positions = np.tile(np.arange(100), 100)
    # 10,000 draws of 24 bits collide about 3 times; a shared sequence would collide thousands of times
    assert len(np.unique(uniform(seeds, positions))) > 9_950
