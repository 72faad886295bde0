"""Gated activations on the fused gate|up projection: SiLU and tanh-approximated GELU."""

from __future__ import annotations

import torch

from motley_kernels.backend import Backend
from motley_kernels.gated_activation import reference


def silu_mul(gate_up: torch.Tensor, *, backend: Backend = "torch") -> torch.Tensor:
    """``silu(gate) * up`` [T, I] of a contiguous ``gate_up`` [T, 2I], gate first."""
    _check("silu_mul", gate_up)
    if backend == "triton":
        from motley_kernels.gated_activation import triton

        return triton.gated(gate_up, "silu")
    return reference.silu_mul(gate_up)


def gelu_tanh_mul(gate_up: torch.Tensor, *, backend: Backend = "torch") -> torch.Tensor:
    """``gelu(gate) * up`` [T, I] with the tanh approximation, of a contiguous ``gate_up`` [T, 2I], gate first."""
    _check("gelu_tanh_mul", gate_up)
    if backend == "triton":
        from motley_kernels.gated_activation import triton

        return triton.gated(gate_up, "gelu_tanh")
    return reference.gelu_tanh_mul(gate_up)


def _check(name: str, gate_up: torch.Tensor) -> None:
    if gate_up.ndim != 2 or gate_up.shape[1] % 2 or not gate_up.is_contiguous():
        raise ValueError(f"{name}: gate_up {tuple(gate_up.shape)} must be contiguous [tokens, 2 * columns]")
