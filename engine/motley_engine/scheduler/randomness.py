"""The only randomness of sampling: a number per (seed, output position), whatever the batch looks like."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from motley_engine.executor.step import FloatArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def uniform(seeds: npt.NDArray[np.uint64], positions: npt.NDArray[np.int64]) -> FloatArray:
    """Numbers in [0, 1), 24 bits each: SplitMix64 (Steele, Lea, Flood 2014) of seed and position, per entry."""
    counter = (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    bits = _mix(_mix(seeds + _GOLDEN) + counter)
    return ((bits >> np.uint64(40)).astype(np.float64) * 2.0**-24).astype(np.float32)


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))
