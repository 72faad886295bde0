"""Store the K and V of new tokens at their slots of a paged pool."""

from __future__ import annotations

import torch

from motley_kernels.backend import Backend
from motley_kernels.kv_write import reference


def kv_write(
    k: torch.Tensor,
    v: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    slots: torch.Tensor,
    *,
    backend: Backend = "torch",
) -> None:
    """``pool[slot // page_size, slot % page_size] = token`` for every token.

    ``k``, ``v`` [T, H, D], may be slices with dense heads; pools [pages, page_size, H, D], contiguous; ``slots`` int64
    [T], distinct except in the sink page 0.
    """
    if k.shape != v.shape or k.ndim != 3 or k.stride(-1) != 1 or v.stride(-1) != 1:
        raise ValueError(f"kv_write: k {tuple(k.shape)} and v {tuple(v.shape)} must be [tokens, heads, dim]")
    for pool in (k_pool, v_pool):
        if pool.ndim != 4 or pool.shape[2:] != k.shape[1:] or not pool.is_contiguous():
            raise ValueError(f"kv_write: pool {tuple(pool.shape)} does not take heads {tuple(k.shape[1:])}")
    if slots.shape != k.shape[:1] or slots.dtype != torch.int64:
        raise ValueError(f"kv_write: slots {tuple(slots.shape)} {slots.dtype} for {k.shape[0]} tokens; want int64")
    if backend == "triton":
        from motley_kernels.kv_write import triton

        triton.kv_write(k, v, k_pool, v_pool, slots)
    else:
        reference.kv_write(k, v, k_pool, v_pool, slots)
