import pytest
import torch

from motley_kernels.kv_write import kv_write


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("heads", "size"), [(3, 20), (1, 256), (17, 128)])
def test_kv_write_touches_its_slots_only(backend, dtype, heads, size, device):
    fused = torch.randn(5, 3, heads, size, dtype=dtype, device=device)
    k, v = fused[:, 1], fused[:, 2]
    pools = [torch.full((7, 4, heads, size), float("nan"), dtype=dtype, device=device) for _ in range(2)]
    slots = torch.tensor([9, 27, 4, 0, 15], device=device)
    kv_write(k, v, *pools, slots, backend=backend)
    for tokens, pool in zip((k, v), pools, strict=True):
        flat = pool.flatten(0, 1)
        assert torch.equal(flat[slots], tokens)
        assert torch.isnan(flat).all((1, 2)).sum() == 7 * 4 - 5


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_kv_write_converts_to_the_type_of_the_pool(backend, device):
    k = torch.randn(2, 1, 16, device=device)
    pools = [torch.zeros(2, 1, 1, 16, dtype=torch.float16, device=device) for _ in range(2)]
    kv_write(k, k, *pools, torch.tensor([1, 0], device=device), backend=backend)
    assert torch.equal(pools[0].flatten(0, 1), k.flip(0).half())


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_kv_write_of_no_tokens_is_nothing(backend, device):
    pool = torch.ones(2, 1, 1, 16, device=device)
    empty = torch.empty(0, 1, 16, device=device)
    kv_write(empty, empty, pool, pool, torch.empty(0, dtype=torch.int64, device=device), backend=backend)
    assert torch.equal(pool, torch.ones_like(pool))


def test_kv_write_refuses_other_heads_and_slot_types():
    k, pool = torch.zeros(2, 1, 16), torch.zeros(2, 4, 2, 16)
    with pytest.raises(ValueError, match="does not take heads"):
        kv_write(k, k, pool, pool, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="want int64"):
        kv_write(k, k, pool[:, :, :1].contiguous(), pool[:, :, :1].contiguous(), torch.zeros(2, dtype=torch.int32))
