"""Rotary position embedding in Triton: one program rotates all query and key heads of one token."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _rotate(
    p_x, stride_head, b_cos, b_sin,
    HEADS: tl.constexpr, BLOCK_H: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    o_d = tl.arange(0, BLOCK)
    for i_h in range(0, HEADS, BLOCK_H):
        o_h = i_h + tl.arange(0, BLOCK_H)
        mask = (o_h < HEADS)[:, None] & (o_d < HALF)[None, :]
        p_first = p_x + (o_h * stride_head)[:, None] + o_d[None, :]
        b_first = tl.load(p_first, mask=mask, other=0.0).to(tl.float32)
        b_second = tl.load(p_first + HALF, mask=mask, other=0.0).to(tl.float32)
        b_out = b_first * b_cos[None, :] - b_second * b_sin[None, :]
        tl.store(p_first, b_out.to(p_x.dtype.element_ty), mask=mask)
        b_out = b_second * b_cos[None, :] + b_first * b_sin[None, :]
        tl.store(p_first + HALF, b_out.to(p_x.dtype.element_ty), mask=mask)


@triton.jit
def _rope_kernel(
    p_q, p_k, p_cos, p_sin, stride_q_token, stride_q_head, stride_k_token, stride_k_head,
    Q_HEADS: tl.constexpr, K_HEADS: tl.constexpr, HALF: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_t = tl.program_id(0).to(tl.int64)
    o_d = tl.arange(0, BLOCK)
    b_cos = tl.load(p_cos + i_t * HALF + o_d, mask=o_d < HALF, other=0.0)
    b_sin = tl.load(p_sin + i_t * HALF + o_d, mask=o_d < HALF, other=0.0)
    _rotate(p_q + i_t * stride_q_token, stride_q_head, b_cos, b_sin, Q_HEADS, BLOCK_Q, HALF, BLOCK)
    _rotate(p_k + i_t * stride_k_token, stride_k_head, b_cos, b_sin, K_HEADS, BLOCK_K, HALF, BLOCK)


def rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    tokens, half = cos.shape
    if tokens == 0:
        return
    _rope_kernel[(tokens,)](
        q, k, cos.contiguous(), sin.contiguous(), q.stride(0), q.stride(1), k.stride(0), k.stride(1),
        Q_HEADS=q.shape[1], K_HEADS=k.shape[1], HALF=half,
        BLOCK_Q=_heads_per_block(q.shape[1]), BLOCK_K=_heads_per_block(k.shape[1]), BLOCK=triton.next_power_of_2(half),
    )  # fmt: skip


def _heads_per_block(heads: int) -> int:
    return min(8, int(triton.next_power_of_2(heads)))
