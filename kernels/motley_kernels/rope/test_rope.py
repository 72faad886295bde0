import pytest
import torch

from motley_kernels.rope import rope, rope_angles


def truth(x, positions, inv_freq, factor):
    """Each pair (i, i + R/2) is a complex number turned by its angle, in float64."""
    half = len(inv_freq)
    pairs = torch.complex(x[..., :half].double(), x[..., half : 2 * half].double())
    angles = positions.double()[:, None] * inv_freq.double()
    turned = pairs * torch.polar(torch.full_like(angles, factor), angles)[:, None]
    return torch.cat([turned.real, turned.imag, x[..., 2 * half :].double()], -1)


# 9 and 3 heads: SmolLM2 at 6+3 leaves odd counts; rotary 24 of 40 features: partial rotary off the power of two
@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("q_heads", "k_heads"), [(9, 3), (1, 1), (16, 2)])
@pytest.mark.parametrize("rotary", [24, 40])
def test_rope_turns_pairs_by_position(backend, dtype, q_heads, k_heads, rotary, device):
    fused = torch.randn(6, (q_heads + 2 * k_heads) * 40, dtype=dtype, device=device)
    before = fused.clone()
    q = fused[:, : q_heads * 40].view(6, q_heads, 40)
    k = fused[:, q_heads * 40 : (q_heads + k_heads) * 40].view(6, k_heads, 40)
    positions = torch.tensor([0, 1, 2, 500, 501, 0], device=device)
    inv_freq = 10000.0 ** (-torch.arange(0, rotary, 2, device=device) / rotary)
    expected = [truth(x, positions, inv_freq, 1.5) for x in (q, k)]
    rope(q, k, *rope_angles(positions, inv_freq, 1.5), backend=backend)
    # float32 angles near 500 carry an absolute error of about 500 * 2^-24, and float16 rounds at 2^-11 of about 6
    tolerance = 2e-4 if dtype == torch.float32 else 4e-3
    for x, wanted in zip((q, k), expected, strict=True):
        torch.testing.assert_close(x.double(), wanted, rtol=tolerance, atol=tolerance)
    values = slice((q_heads + k_heads) * 40, None)
    assert torch.equal(fused[:, values], before[:, values])


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_rope_of_no_tokens_is_nothing(backend, device):
    inv_freq = torch.ones(4, device=device)
    angles = rope_angles(torch.empty(0, dtype=torch.int64, device=device), inv_freq)
    rope(torch.empty(0, 2, 8, device=device), torch.empty(0, 1, 8, device=device), *angles, backend=backend)


def test_rope_refuses_heads_smaller_than_the_rotary_part():
    angles = rope_angles(torch.arange(2), torch.ones(8))
    with pytest.raises(ValueError, match="does not fit cos"):
        rope(torch.zeros(2, 1, 8), torch.zeros(2, 1, 8), *angles)
