"""RMS normalisation in Triton: one program per block of rows, a row wholly in registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# elements per program; short rows (query and key heads) share a program
_TILE = 4096


@triton.jit(do_not_specialize=["rows"])
def _norm_kernel(
    p_x, p_residual, p_weight, p_y, rows, heads, stride_token, stride_head, eps, offset,
    D: tl.constexpr, BLOCK_D: tl.constexpr, ROWS: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    i_row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    o_d = tl.arange(0, BLOCK_D)
    mask = (i_row < rows)[:, None] & (o_d < D)[None, :]
    o_x = (i_row // heads * stride_token + i_row % heads * stride_head)[:, None] + o_d[None, :]
    o_y = (i_row * D)[:, None] + o_d[None, :]

    b_x = tl.load(p_x + o_x, mask=mask, other=0.0)
    if ADD:
        # the sum is rounded to the residual's dtype before it is normalised, as it is stored
        b_x = (b_x.to(tl.float32) + tl.load(p_residual + o_y, mask=mask, other=0.0).to(tl.float32)).to(b_x.dtype)
        tl.store(p_residual + o_y, b_x, mask=mask)
    b_x = b_x.to(tl.float32)
    b_scale = 1.0 / tl.sqrt(tl.sum(b_x * b_x, axis=1) / D + eps)
    b_weight = tl.load(p_weight + o_d, mask=o_d < D, other=0.0).to(tl.float32) + offset
    b_y = b_x * b_scale[:, None] * b_weight[None, :]
    tl.store(p_y + o_y, b_y.to(p_y.dtype.element_ty), mask=mask)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float) -> torch.Tensor:
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch(x, None, weight, y, eps, offset)
    return y


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, offset: float
) -> torch.Tensor:
    if not residual.is_contiguous():
        raise ValueError("add_rms_norm: residual must be dense")
    y = torch.empty_like(residual)
    _launch(x, residual, weight, y, eps, offset)
    return y


def _launch(x, residual, weight, y, eps, offset):
    size = x.shape[-1]
    heads = x.shape[1] if x.ndim == 3 else 1
    rows = x.shape[0] * heads
    if rows == 0:
        return
    block = triton.next_power_of_2(size)
    rows_per_program = max(1, _TILE // block)
    _norm_kernel[(triton.cdiv(rows, rows_per_program),)](
        x, residual, weight, y, rows, heads, x.stride(0), x.stride(1) if x.ndim == 3 else 0, eps, offset,
        D=size, BLOCK_D=block, ROWS=rows_per_program, ADD=residual is not None,
        num_warps=min(16, max(4, block // 512)),
    )  # fmt: skip
