import pytest
import torch

from motley_kernels.embedding import embedding


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("columns", [1, 576, 1025])
def test_shards_add_up_to_the_whole_table(backend, dtype, columns, device):
    table = torch.randn(130, columns, dtype=dtype, device=device)
    tokens = torch.tensor([0, 63, 64, 129, 5, 5], device=device)
    shards = [table[:64].clone(), table[64:].clone()]
    parts = [embedding(tokens, shards[i], 64 * i, scale=25.25, backend=backend) for i in range(2)]
    assert torch.equal(parts[0] + parts[1], (table[tokens].float() * 25.25).to(dtype))
    assert not parts[0][2:4].any()
    assert not parts[1][:2].any()


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_rows_of_other_ranks_are_never_read(backend, device):
    table = torch.full((4, 8), float("nan"), device=device)
    assert not embedding(torch.tensor([3, 8, 100], device=device), table, 4, backend=backend).any()


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_no_tokens_and_no_rows(backend, device):
    tokens = torch.empty(0, dtype=torch.int64, device=device)
    assert embedding(tokens, torch.ones(4, 8, device=device), 0, backend=backend).shape == (0, 8)
    assert not embedding(tokens.new_zeros(2), torch.ones(0, 8, device=device), 0, backend=backend).any()


def test_embedding_refuses_other_token_types():
    with pytest.raises(ValueError, match="want int64"):
        embedding(torch.zeros(2, dtype=torch.int32), torch.zeros(4, 8), 0)
