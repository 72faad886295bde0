"""Look tokens up in one rank's rows of the embedding table."""

from __future__ import annotations

import torch

from motley_kernels.backend import Backend
from motley_kernels.embedding import reference


def embedding(
    tokens: torch.Tensor, weight: torch.Tensor, start: int, *, scale: float = 1.0, backend: Backend = "torch"
) -> torch.Tensor:
    """``weight[token - start] * scale`` [T, H]; zeros for tokens outside [start, start + rows), which other ranks hold.

    ``tokens`` int64 [T]; ``weight`` [rows, H], contiguous. The product is rounded to weight's dtype.
    """
    if tokens.ndim != 1 or tokens.dtype != torch.int64:
        raise ValueError(f"embedding: tokens {tuple(tokens.shape)} {tokens.dtype}; want int64 [tokens]")
    if weight.ndim != 2 or not weight.is_contiguous():
        raise ValueError(f"embedding: weight {tuple(weight.shape)} must be contiguous [rows, hidden]")
    if backend == "triton":
        from motley_kernels.embedding import triton

        return triton.embedding(tokens, weight, start, scale)
    return reference.embedding(tokens, weight, start, scale)
