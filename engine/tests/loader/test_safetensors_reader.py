"""Safetensors: one file, shards, multimodal names, and every way in which a checkpoint can be broken."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from motley_engine.loader.errors import CheckpointError
from motley_engine.loader.safetensors_files import INDEX, SINGLE, SafetensorsReader

CPU = torch.device("cpu")


def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "model.embed_tokens.weight": torch.randn(50, 8, generator=generator).bfloat16(),
        "model.norm.weight": torch.randn(8, generator=generator),
        "model.layers.0.mlp.down_proj.weight": torch.randn(8, 30, generator=generator).half(),
    }


def write_shards(directory: Path) -> dict[str, torch.Tensor]:
    held = tensors()
    placed = {name: f"model-{number:05}-of-00003.safetensors" for number, name in enumerate(held, 1)}
    for name, file in placed.items():
        save_file({name: held[name]}, directory / file)
    (directory / INDEX).write_text(json.dumps({"weight_map": placed}))
    return held


@pytest.mark.parametrize("sharded", [False, True])
def test_slices_equal_the_tensors(sharded: bool, tmp_path: Path) -> None:
    held = write_shards(tmp_path) if sharded else tensors()
    if not sharded:
        save_file(held, tmp_path / SINGLE)
    reader = SafetensorsReader(tmp_path)
    assert reader.names() == set(held)
    for name, tensor in held.items():
        assert reader.shape(name) == tuple(tensor.shape)
        assert torch.equal(reader.read(name, None, 0, 0, CPU), tensor)
        assert torch.equal(reader.read(name, 0, 2, 7, CPU), tensor[2:7])
    down = "model.layers.0.mlp.down_proj.weight"
    assert torch.equal(reader.read(down, 1, 3, 29, CPU), held[down][:, 3:29])


def test_threads_may_read_at_once(tmp_path: Path) -> None:
    held = write_shards(tmp_path)
    reader = SafetensorsReader(tmp_path)
    name = "model.embed_tokens.weight"
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(lambda row: reader.read(name, 0, row % 50, row % 50 + 1, CPU), range(400)))
    assert all(torch.equal(found[0], held[name][row % 50]) for row, found in enumerate(rows))


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_the_text_model_of_a_multimodal_checkpoint_has_text_names(prefix: str, tmp_path: Path) -> None:
    save_file({f"{prefix}norm.weight": torch.ones(4), "vision_tower.patch.weight": torch.ones(2)}, tmp_path / SINGLE)
    reader = SafetensorsReader(tmp_path)
    assert reader.names() == {"model.norm.weight", "vision_tower.patch.weight"}
    assert reader.read("model.norm.weight", None, 0, 0, CPU).shape == (4,)


def test_single_file_of_another_name_is_taken_but_not_one_of_two(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "weights.safetensors")
    assert SafetensorsReader(tmp_path).names() == {"a"}
    save_file({"b": torch.ones(1)}, tmp_path / "consolidated.safetensors")
    with pytest.raises(CheckpointError, match=f"2 safetensors files without {INDEX}"):
        SafetensorsReader(tmp_path)


def test_empty_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"{tmp_path}: neither {INDEX} nor {SINGLE}"):
        SafetensorsReader(tmp_path)


def test_missing_shard_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-00002-of-00003\.safetensors: missing"):
        SafetensorsReader(tmp_path)


@pytest.mark.parametrize("keep", [4, 60, -1])
def test_truncated_shard_is_named(keep: int, tmp_path: Path) -> None:
    write_shards(tmp_path)
    shard = tmp_path / "model-00003-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"model-00003-of-00003\.safetensors: damaged or incomplete"):
        SafetensorsReader(tmp_path)


def test_index_that_places_a_tensor_wrongly_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path)
    index = json.loads((tmp_path / INDEX).read_text())
    index["weight_map"]["lm_head.weight"] = "model-00001-of-00003.safetensors"
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"model-00001-of-00003\.safetensors: lacks lm_head\.weight"):
        SafetensorsReader(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": 3}', '{"metadata": {}}'])
def test_damaged_index_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(CheckpointError, match=f"{INDEX}: damaged index"):
        SafetensorsReader(tmp_path)


def test_quantised_tensor_is_refused_by_name(tmp_path: Path) -> None:
    save_file({"q": torch.ones(4, dtype=torch.int32)}, tmp_path / SINGLE)
    with pytest.raises(CheckpointError, match="tensor q is of type I32"):
        SafetensorsReader(tmp_path).read("q", None, 0, 0, CPU)
