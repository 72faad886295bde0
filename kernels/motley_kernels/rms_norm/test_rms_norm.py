import pytest
import torch

from motley_kernels.rms_norm import add_rms_norm, rms_norm

# 1 and 63: below a warp and off the tile; 576 and 640: SmolLM2 and Gemma widths; 4097 spills a power of two
WIDTHS = [1, 63, 576, 640, 4097]
# float16 rounds once at the end: half a ULP, 2^-11 relative; float32 differs by summation order, about sqrt(4097) ULP
TOLERANCE = {torch.float32: 2e-5, torch.float16: 1e-3}


def truth(x, weight, eps, offset):
    wide = x.double()
    return wide / (wide.pow(2).mean(-1, keepdim=True) + eps).sqrt() * (weight.double() + offset)


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows", [0, 1, 7])
def test_rms_norm_matches_float64(backend, dtype, width, rows, device):
    x, weight = torch.randn(rows, width, dtype=dtype, device=device), torch.randn(width, dtype=dtype, device=device)
    y = rms_norm(x, weight, 1e-5, offset=1.0, backend=backend)
    assert y.dtype == dtype
    torch.testing.assert_close(y.double(), truth(x, weight, 1e-5, 1.0), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("heads", [1, 3])
def test_rms_norm_takes_heads_out_of_a_fused_projection(backend, heads, device):
    fused = torch.randn(5, 9 * 20, device=device)
    x = fused[:, 20 : 20 + heads * 20].view(5, heads, 20)
    weight = torch.randn(20, device=device)
    y = rms_norm(x, weight, 1e-6, backend=backend)
    assert y.is_contiguous()
    torch.testing.assert_close(y.double(), truth(x, weight, 1e-6, 0.0), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("rows", [0, 1, 7])
def test_add_rms_norm_normalises_the_stored_sum(backend, dtype, rows, device):
    x, residual = torch.randn(2, rows, 577, dtype=dtype, device=device)
    weight = torch.randn(577, dtype=dtype, device=device)
    total = x + residual
    y = add_rms_norm(x, residual, weight, 1e-6, backend=backend)
    assert torch.equal(residual, total)
    torch.testing.assert_close(
        y.double(), truth(total, weight, 1e-6, 0.0), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
    )


def test_rms_norm_refuses_a_weight_of_another_width():
    with pytest.raises(ValueError, match="does not fit weight"):
        rms_norm(torch.zeros(2, 8), torch.ones(4), 1e-6)


def test_add_rms_norm_refuses_another_residual():
    with pytest.raises(ValueError, match="differ"):
        add_rms_norm(torch.zeros(2, 8), torch.zeros(3, 8), torch.ones(8), 1e-6)
