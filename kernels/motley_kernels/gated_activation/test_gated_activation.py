import math

import pytest
import torch

from motley_kernels.gated_activation import gelu_tanh_mul, silu_mul

TRUTH = {
    silu_mul: lambda x: x / (1 + torch.exp(-x)),
    gelu_tanh_mul: lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


# 1536 / 3 columns is SmolLM2 at a third; 1025 leaves a one-element tail
@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("op", [silu_mul, gelu_tanh_mul])
@pytest.mark.parametrize(("rows", "columns"), [(0, 16), (1, 1), (3, 512), (2, 1025)])
def test_gated_activation_matches_float64(backend, dtype, op, rows, columns, device):
    x = 4 * torch.randn(rows, 2 * columns, dtype=dtype, device=device)
    y = op(x, backend=backend)
    gate, up = x.double().chunk(2, -1)
    assert y.dtype == dtype
    # one rounding at the end: half a ULP of the type, with room for exp in float32
    tolerance = 1e-5 if dtype == torch.float32 else 1e-3
    torch.testing.assert_close(y.double(), TRUTH[op](gate) * up, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("op", [silu_mul, gelu_tanh_mul])
@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_gated_activation_survives_large_gates(backend, op, device):
    x = torch.tensor([[1e4, -1e4, 2.0, 2.0]], device=device)
    torch.testing.assert_close(op(x, backend=backend), torch.tensor([[2e4, 0.0]], device=device))


def test_gated_activation_refuses_an_odd_width():
    with pytest.raises(ValueError, match="2 \\* columns"):
        silu_mul(torch.zeros(2, 3))
