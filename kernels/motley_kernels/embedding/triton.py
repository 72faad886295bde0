"""Sharded embedding lookup in Triton: one program per token and block of columns."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _embedding_kernel(p_tokens, p_weight, p_y, start, rows, scale, columns, BLOCK: tl.constexpr):
    i_t = tl.program_id(0).to(tl.int64)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    i_row = tl.load(p_tokens + i_t) - start
    # rows of other ranks are read to width 0
    width = tl.where((i_row >= 0) & (i_row < rows), columns, 0)
    b = tl.load(p_weight + i_row * columns + o, mask=o < width, other=0.0).to(tl.float32) * scale
    tl.store(p_y + i_t * columns + o, b.to(p_y.dtype.element_ty), mask=o < columns)


def embedding(tokens: torch.Tensor, weight: torch.Tensor, start: int, scale: float) -> torch.Tensor:
    columns = weight.shape[1]
    y = torch.empty(len(tokens), columns, dtype=weight.dtype, device=weight.device)
    if y.numel() == 0:
        return y
    block = min(1024, triton.next_power_of_2(columns))
    _embedding_kernel[(len(tokens), triton.cdiv(columns, block))](
        tokens, weight, y, start, weight.shape[0], scale, columns, BLOCK=block
    )
    return y
