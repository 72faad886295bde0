"""Rotary position embedding in plain torch."""

from __future__ import annotations

import torch


def rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    for x in (q, k):
        _rotate(x, cos[:, None, :], sin[:, None, :])


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    half = cos.shape[-1]
    first, second = x[..., :half], x[..., half : 2 * half]
    a, b = first.float(), second.float()
    rotated = a * cos - b * sin, b * cos + a * sin
    first.copy_(rotated[0])
    second.copy_(rotated[1])
