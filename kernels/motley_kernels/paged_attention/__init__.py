"""Causal attention of new tokens over a paged K/V pool that already holds them: chunks, decodes and mixtures."""

from __future__ import annotations

import torch

from motley_kernels.backend import Backend
from motley_kernels.paged_attention import reference
from motley_kernels.paged_attention.batch import HeadMap, PagedBatch

__all__ = ["HeadMap", "PagedBatch", "paged_attention"]


def paged_attention(
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    batch: PagedBatch,
    heads: HeadMap,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
    backend: Backend = "torch",
) -> torch.Tensor:
    """Attention output [T, Hq, D] of the step's queries ``q`` [T, Hq, D] (a slice with dense heads will do).

    Pools [pages, page_size, Hkv, D], contiguous, page_size a power of two. Query i of a sequence sits at position
    ``kv_len - q_len + i`` and sees positions up to its own, with ``window`` > 0 only the last ``window`` of them.
    Scores are ``q.k * scale``, with ``softcap`` > 0 then ``softcap * tanh(score / softcap)``. Sequences of kv length 0
    give zeros. Slots that no query may see are never read, whatever they hold.
    """
    tokens, q_heads, size = q.shape
    _, page_size, kv_heads, pool_size = k_pool.shape
    if v_pool.shape != k_pool.shape or not k_pool.is_contiguous() or not v_pool.is_contiguous():
        raise ValueError(f"paged_attention: pools {tuple(k_pool.shape)}, {tuple(v_pool.shape)}; want equal, contiguous")
    if pool_size != size or q.stride(-1) != 1:
        raise ValueError(f"paged_attention: q {tuple(q.shape)} does not fit the pool's head size {pool_size}")
    if page_size & (page_size - 1):
        raise ValueError(f"paged_attention: page size {page_size} is not a power of two")
    if heads.kv_heads(q_heads) > kv_heads:
        raise ValueError(f"paged_attention: {q_heads} query heads with {heads} need more than {kv_heads} K/V heads")
    if batch.decode and tokens != len(batch.kv_lens):
        raise ValueError(f"paged_attention: {tokens} tokens in a decode batch of {len(batch.kv_lens)} sequences")
    if backend == "triton":
        from motley_kernels.paged_attention import triton

        return triton.paged_attention(q, k_pool, v_pool, batch, heads, scale, window, softcap)
    return reference.paged_attention(q, k_pool, v_pool, batch, heads, scale, window, softcap)
