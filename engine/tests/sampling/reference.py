"""Sampling written row by row in plain numpy float64: the truth that the vectorised sampler is compared with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.float64]


def kept(row: Row, temperature: float, top_k: int, top_p: float, min_p: float) -> Row:
    """Unnormalised probabilities after temperature and filters; 0 for ids that are out."""
    scaled = row / temperature
    mass = np.exp(scaled - scaled.max())
    order = np.argsort(-mass, kind="stable")
    k = top_k if 1 <= top_k < len(row) else len(row)
    inside = mass[order[:k]]
    floor = inside[-1]
    if top_p < 1:
        reached = 0.0
        for value in inside:
            floor = value
            reached += value
            if reached >= top_p * inside.sum():
                break
    floor = max(floor, min_p * mass.max())
    return np.where(mass >= floor, mass, 0.0)


def draw(mass: Row, u: float) -> int:
    """The first id whose cumulated share exceeds ``u``."""
    reached = 0.0
    for token, value in enumerate(mass):
        reached += value
        if reached > u * mass.sum():
            return token
    return int(np.flatnonzero(mass)[-1])


def penalised(
    row: Row,
    prompt: Sequence[int],
    output: Sequence[int],
    repetition: float,
    frequency: float,
    presence: float,
    bias: Mapping[int, float],
) -> Row:
    row = row.copy()
    for token in set(prompt) | set(output):
        row[token] = row[token] / repetition if row[token] > 0 else row[token] * repetition
    for token, count in Counter(output).items():
        row[token] -= frequency * count + presence
    for token, value in bias.items():
        row[token] += value
    return row


def log_softmax(row: Row) -> Row:
    shifted = row - row.max()
    return shifted - math.log(np.exp(shifted).sum())
