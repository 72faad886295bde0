"""Gated activations in Triton: elementwise over [T, I]."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# sqrt(2 / pi) and the cubic coefficient of the tanh approximation (Hendrycks and Gimpel, arXiv 1606.08415)
_GELU_SCALE = tl.constexpr(0.7978845608028654)
_GELU_CUBIC = tl.constexpr(0.044715)


@triton.jit
def _gated_kernel(p_x, p_y, columns, GELU: tl.constexpr, BLOCK: tl.constexpr):
    i_t = tl.program_id(0).to(tl.int64)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = o < columns
    b_gate = tl.load(p_x + i_t * 2 * columns + o, mask=mask, other=0.0).to(tl.float32)
    b_up = tl.load(p_x + i_t * 2 * columns + columns + o, mask=mask, other=0.0).to(tl.float32)
    if GELU:
        b_inner = _GELU_SCALE * (b_gate + _GELU_CUBIC * b_gate * b_gate * b_gate)
        # (1 + tanh(x)) / 2 is the logistic function of 2x
        b_act = b_gate * tl.sigmoid(2.0 * b_inner)
    else:
        b_act = b_gate * tl.sigmoid(b_gate)
    tl.store(p_y + i_t * columns + o, (b_act * b_up).to(p_y.dtype.element_ty), mask=mask)


def gated(gate_up: torch.Tensor, activation: str) -> torch.Tensor:
    tokens, columns = gate_up.shape[0], gate_up.shape[1] // 2
    y = torch.empty(tokens, columns, dtype=gate_up.dtype, device=gate_up.device)
    if y.numel() == 0:
        return y
    block = min(1024, triton.next_power_of_2(columns))
    _gated_kernel[(tokens, triton.cdiv(columns, block))](
        gate_up, y, columns, GELU=activation == "gelu_tanh", BLOCK=block
    )
    return y
