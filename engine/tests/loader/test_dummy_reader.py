"""Random weights: one value per (seed, name, position), whatever the split."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley_engine.loader import dummy
from motley_engine.loader.dummy import STD, DummyReader

CPU = torch.device("cpu")
SHAPES = {"a.weight": (37, 23), "b.weight": (37, 23), "c.bias": (50,), "input_layernorm.weight": (8,)}


def whole(name: str, seed: int = 0) -> torch.Tensor:
    return DummyReader(SHAPES, seed).read(name, None, 0, 0, CPU)


@given(st.data())
def test_a_slice_equals_the_slice_of_the_whole(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["a.weight", "c.bias"]))
    dim = data.draw(st.integers(0, len(SHAPES[name]) - 1))
    start = data.draw(st.integers(0, SHAPES[name][dim] - 1))
    stop = data.draw(st.integers(start, SHAPES[name][dim]))
    part = DummyReader(SHAPES, 0).read(name, dim, start, stop, CPU)
    assert torch.equal(part, whole(name).narrow(dim, start, stop - start))


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = whole("a.weight")
    monkeypatch.setattr(dummy, "CHUNK_ELEMENTS", 50)
    assert torch.equal(whole("a.weight"), expected)
    assert torch.equal(DummyReader(SHAPES, 0).read("a.weight", 1, 3, 9, CPU), expected[:, 3:9])


def test_names_and_seeds_give_other_values() -> None:
    assert not torch.equal(whole("a.weight"), whole("b.weight"))
    assert not torch.equal(whole("a.weight"), whole("a.weight", seed=1))
    assert torch.equal(whole("a.weight"), whole("a.weight"))


def test_norms_are_neutral() -> None:
    assert torch.equal(whole("input_layernorm.weight"), torch.ones(8))
    offset = DummyReader(SHAPES, 0, norm_value=0.0).read("input_layernorm.weight", 0, 2, 5, CPU)
    assert torch.equal(offset, torch.zeros(3))


def test_values_have_the_moments_of_an_initialiser() -> None:
    values = DummyReader({"w.weight": (1000, 1000)}, 3).read("w.weight", None, 0, 0, CPU)
    # a million draws: the mean's deviation is std / 1000, and neighbours' correlation 1 / 1000; five of each is far out
    assert abs(values.mean().item()) < 5 * STD / 1000
    assert abs(values.std().item() / STD - 1) < 0.005
    for shift in (1, 1000):
        flat = values.flatten()
        assert abs((flat[:-shift] * flat[shift:]).mean().item()) < 5 * STD**2 / 1000


def test_positions_beyond_32_bits_do_not_repeat() -> None:
    reader = DummyReader({"w.weight": (1 << 20, 1 << 13)}, 0)
    low = reader.read("w.weight", 0, 0, 2, CPU)
    # row 2**19 starts exactly 2**32 elements further on
    high = reader.read("w.weight", 0, 1 << 19, (1 << 19) + 2, CPU)
    assert not torch.equal(low, high)
    assert abs((low * high).mean().item()) < 5 * STD**2 / 128


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_gives_the_same_values() -> None:
    reader = DummyReader({"w.weight": (777, 333)}, 5)
    on_card = reader.read("w.weight", 1, 7, 300, torch.device("cuda"))
    assert torch.equal(on_card.cpu(), reader.read("w.weight", 1, 7, 300, CPU))
