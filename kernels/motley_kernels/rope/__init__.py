"""Rotary position embedding: the angles of a step once, then queries and keys of every layer in place."""

from __future__ import annotations

import torch

from motley_kernels.backend import Backend
from motley_kernels.rope import reference


def rope_angles(
    positions: torch.Tensor, inv_freq: torch.Tensor, attention_factor: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, float32 [T, R/2] each, times ``attention_factor``.

    ``positions`` integer [T]; ``inv_freq`` float32 [R/2]. Once per step and rope variant, for all its layers.
    """
    angles = positions.float()[:, None] * inv_freq[None, :]
    return angles.cos() * attention_factor, angles.sin() * attention_factor


def rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, backend: Backend = "torch") -> None:
    """Rotate ``q`` [T, Hq, D] and ``k`` [T, Hk, D] in place; feature i pairs with i + R/2 (the "neox" order).

    ``cos``, ``sin`` float32 [T, R/2]; features from R on stay. q and k may be slices with dense heads.
    """
    half = cos.shape[-1]
    for name, x in (("q", q), ("k", k)):
        if x.ndim != 3 or x.shape[0] != cos.shape[0] or x.shape[-1] < 2 * half or x.stride(-1) != 1:
            raise ValueError(f"rope: {name} {tuple(x.shape)} does not fit cos {tuple(cos.shape)}")
    if cos.shape != sin.shape or cos.dtype != torch.float32 or sin.dtype != torch.float32:
        raise ValueError("rope: cos and sin must be float32 of one shape")
    if backend == "triton":
        from motley_kernels.rope import triton

        triton.rope(q, k, cos, sin)
    else:
        reference.rope(q, k, cos, sin)
