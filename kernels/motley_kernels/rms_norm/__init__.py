"""RMS normalisation, alone or fused with the residual addition before it."""

from __future__ import annotations

import torch

from motley_kernels.backend import Backend
from motley_kernels.rms_norm import reference


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, *, offset: float = 0.0, backend: Backend = "torch"
) -> torch.Tensor:
    """``x / sqrt(mean(x^2) + eps) * (weight + offset)`` over the last dimension, in float32, rounded once to x's dtype.

    ``x`` [..., D] with at most two leading dimensions and a dense last one (a slice of a fused projection will do);
    ``weight`` [D]. ``offset`` is 1 for checkpoints that store the weight minus one. Returns a new dense tensor.
    """
    _check(x, weight)
    if backend == "triton":
        from motley_kernels.rms_norm import triton

        return triton.rms_norm(x, weight, eps, offset)
    return reference.rms_norm(x, weight, eps, offset)


def add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    offset: float = 0.0,
    backend: Backend = "torch",
) -> torch.Tensor:
    """``residual += x`` in place and in its dtype, then ``rms_norm(residual)``. ``x`` and ``residual`` dense [T, D]."""
    _check(x, weight)
    if x.ndim != 2 or residual.shape != x.shape or residual.dtype != x.dtype:
        raise ValueError(f"add_rms_norm: x {x.shape} {x.dtype} and residual {residual.shape} {residual.dtype} differ")
    if backend == "triton":
        from motley_kernels.rms_norm import triton

        return triton.add_rms_norm(x, residual, weight, eps, offset)
    return reference.add_rms_norm(x, residual, weight, eps, offset)


def _check(x: torch.Tensor, weight: torch.Tensor) -> None:
    if weight.ndim != 1 or not 2 <= x.ndim <= 3 or x.shape[-1] != weight.shape[0]:
        raise ValueError(f"rms_norm: x {tuple(x.shape)} does not fit weight {tuple(weight.shape)}")
    if x.stride(-1) != 1:
        raise ValueError(f"rms_norm: the last dimension of x must be dense, its stride is {x.stride(-1)}")
