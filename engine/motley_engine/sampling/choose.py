"""Logits to ids by inverse CDF. Each row's id depends on that row alone, never on what else is in the batch.

Filters keep ids by value (every id at or above a row's threshold, ties included) and the CDF runs in id order, so the
result does not depend on how a sort or top-k happens to order ties. Sums over the vocabulary are running sums in
float64: unlike a reduction, they add in the same order whatever the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from motley_engine.executor.step import FloatArray, IntArray
from motley_engine.sampling.upload import upload

# how many of the largest logits are ordered first: nearly always enough for top-p, and much cheaper than a full sort
_HEADS = (64, 1024)


@dataclass(frozen=True, slots=True)
class _Filtered:
    """Rows whose top-k or top-p needs ordered logits, all with the same ``head`` (0 = order everything). In a group
    with a head, either all rows have a ``top_k`` within it or none has a ``top_k``."""

    rows: npt.NDArray[np.int64]
    head: int
    top_k: npt.NDArray[np.int64]
    top_p: npt.NDArray[np.float64]

    def part(self, chosen: npt.NDArray[np.int64], head: int) -> _Filtered:
        return _Filtered(self.rows[chosen], head, self.top_k[chosen], self.top_p[chosen])


def sample(
    logits: torch.Tensor, temperature: FloatArray, top_k: IntArray, top_p: FloatArray, min_p: FloatArray, u: FloatArray
) -> torch.Tensor:
    """Ids int64 [S] drawn from float32 ``logits`` [S, V]; one parameter per row, temperature > 0, ``u`` in [0, 1).

    In order: temperature; the ``top_k`` largest (off if < 1); of those the fewest that reach ``top_p`` of their mass;
    of those the ones with at least ``min_p`` times the largest probability.
    """
    device = logits.device
    scaled = logits / upload(temperature, device).unsqueeze(1)
    scaled -= scaled.amax(dim=1, keepdim=True)
    threshold = upload(_min_p_threshold(min_p), device)
    for group in _groups(top_k, top_p, logits.shape[1], device):
        index = upload(group.rows, device)
        threshold[index] = torch.maximum(threshold[index], _top_threshold(scaled[index], group))
    weights = torch.where(scaled >= threshold.unsqueeze(1), scaled.exp(), 0.0)
    return _invert(weights, upload(u, device))


def _min_p_threshold(min_p: FloatArray) -> FloatArray:
    """Smallest kept logit relative to the row's largest; -inf where min-p is off."""
    with np.errstate(divide="ignore"):
        return np.log(min_p.astype(np.float64)).astype(np.float32)


def _groups(top_k: IntArray, top_p: FloatArray, vocab: int, device: torch.device) -> list[_Filtered]:
    """The filtered rows by the head that serves them, which is a matter of each row's own parameters."""
    limited = (top_k >= 1) & (top_k < vocab)
    k = np.where(limited, top_k, vocab).astype(np.int64)
    head = np.zeros(len(k), np.int64)
    if device.type == "cpu":
        # whether the head holds enough mass for top-p is asked of the device: free here, a stall on a GPU
        head[~limited] = _HEADS[-1]
    for width in reversed(_HEADS):
        head[limited & (k <= width)] = width
    head[head >= vocab] = 0
    everyone = _Filtered(np.arange(len(k)), 0, k, top_p.astype(np.float64))
    by_k = [(limited & (head == width), width) for width in (*_HEADS, 0)]
    by_p = [(~limited & (top_p < 1.0) & (head == width), width) for width in (_HEADS[-1], 0)]
    return [everyone.part(np.flatnonzero(chosen), width) for chosen, width in (*by_k, *by_p) if chosen.any()]


def _top_threshold(scaled: torch.Tensor, group: _Filtered) -> torch.Tensor:
    """Smallest logit that top-k and top-p keep, for each row of ``group``; ``scaled`` [rows, V]."""
    if group.head == 0:
        return _cut(torch.sort(scaled, dim=1, descending=True).values, group)[0]
    ordered = torch.topk(scaled, group.head, dim=1).values
    if group.top_k[0] <= group.head:
        return _cut(ordered, group)[0]
    threshold, enough = _cut(ordered, group, total=_running(scaled.exp())[:, -1:])
    short = np.flatnonzero(~enough.numpy())
    if len(short):
        threshold[torch.from_numpy(short)] = _top_threshold(scaled[torch.from_numpy(short)], group.part(short, 0))
    return threshold


def _cut(
    ordered: torch.Tensor, group: _Filtered, total: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Threshold per row from its largest logits in descending order [rows, W], and whether those W were enough.

    ``total`` is the mass that top-p is a share of; default: the mass of the ``top_k`` first.
    """
    places = torch.arange(ordered.shape[1], device=ordered.device)
    within = places < upload(group.top_k, ordered.device).unsqueeze(1)
    mass = torch.where(within, ordered.exp(), 0.0)
    reached = _running(mass)
    wanted = upload(group.top_p, ordered.device).unsqueeze(1)
    wanted = wanted * (reached[:, -1:] if total is None else total)
    kept = within & (reached - mass < wanted)
    last = kept.sum(dim=1, keepdim=True).clamp_(min=1) - 1
    return ordered.gather(1, last).squeeze(1), reached[:, -1] >= wanted.squeeze(1)


def _invert(weights: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """First id whose cumulated weight exceeds ``u`` of the row's total."""
    cdf = _running(weights)
    total = cdf[:, -1:]
    ids = torch.searchsorted(cdf, u.double().unsqueeze(1) * total, right=True)
    # rounding may lift u * total to total: then the last id with weight
    last = (cdf < total).sum(dim=1, keepdim=True)
    return torch.minimum(ids, last).squeeze(1)


def _running(x: torch.Tensor) -> torch.Tensor:
    return x.cumsum(dim=1, dtype=torch.float64)
