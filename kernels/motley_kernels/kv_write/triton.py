"""K/V scatter in Triton: one program per token copies all its heads."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _write_kernel(
    p_k, p_v, p_k_pool, p_v_pool, p_slots, stride_k_token, stride_k_head, stride_v_token, stride_v_head,
    HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_t = tl.program_id(0).to(tl.int64)
    slot = tl.load(p_slots + i_t)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = o < HEADS * D
    i_h = o // D
    i_d = o % D
    b_k = tl.load(p_k + i_t * stride_k_token + i_h * stride_k_head + i_d, mask=mask)
    b_v = tl.load(p_v + i_t * stride_v_token + i_h * stride_v_head + i_d, mask=mask)
    tl.store(p_k_pool + slot * (HEADS * D) + o, b_k.to(p_k_pool.dtype.element_ty), mask=mask)
    tl.store(p_v_pool + slot * (HEADS * D) + o, b_v.to(p_v_pool.dtype.element_ty), mask=mask)


def kv_write(k: torch.Tensor, v: torch.Tensor, k_pool: torch.Tensor, v_pool: torch.Tensor, slots: torch.Tensor) -> None:
    tokens, heads, size = k.shape
    if tokens == 0:
        return
    block = min(2048, triton.next_power_of_2(heads * size))
    _write_kernel[(tokens, triton.cdiv(heads * size, block))](
        k, v, k_pool, v_pool, slots, k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        HEADS=heads, D=size, BLOCK=block,
    )  # fmt: skip
