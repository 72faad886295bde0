"""GGUF slices against gguf's own dequantisation and transformers' conventions, bit for bit."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from motley_engine.loader.errors import CheckpointError
from motley_engine.loader.gguf_file import QUANTISED, GGUFReader
from motley_planner.gguf_header import read_header
from motley_planner.sources import ResolvedModel

CPU = torch.device("cpu")
TYPES = ("F32", "F16", "BF16", *QUANTISED)
ROWS, HEAD_DIM = 48, 8
DOWN, QUERY, KEY = "blk.0.ffn_down.weight", "blk.0.attn_q.weight", "blk.0.attn_k.weight"
HF_DOWN, HF_QUERY = "model.layers.0.mlp.down_proj.weight", "model.layers.0.self_attn.q_proj.weight"


def stored_rows(kind: GGMLQuantizationType, rows: int, blocks: int) -> np.ndarray:
    """Random rows as a file stores them: quantised by gguf where it can, else random blocks of that type."""
    random = np.random.default_rng(kind.value)
    block, block_bytes = GGML_QUANT_SIZES[kind]
    values = random.standard_normal((rows, blocks * block), dtype=np.float32)
    if kind == GGMLQuantizationType.F32:
        return values
    if kind == GGMLQuantizationType.F16:
        return values.astype(np.float16)
    try:
        return gguf.quantize(values, kind)
    except NotImplementedError:
        return random.integers(0, 256, (rows, blocks * block_bytes), dtype=np.uint8)


def same_bits(found: torch.Tensor, expected: np.ndarray) -> bool:
    """Equal as bits, since random blocks also hold NaN."""
    return np.array_equal(found.float().contiguous().numpy().view(np.int32), expected.view(np.int32))


def dequantised(kind: GGMLQuantizationType, stored: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(gguf.dequantize(stored, kind))


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("name", TYPES)
def test_slices_equal_the_dequantised_whole(name: str, write_gguf) -> None:
    kind = GGMLQuantizationType[name]
    block = GGML_QUANT_SIZES[kind][0]
    blocks = 3 if block > 1 else 96
    stored = stored_rows(kind, ROWS, blocks)
    reader = GGUFReader(write_gguf({DOWN: (kind, stored)}), HEAD_DIM)
    whole, columns = dequantised(kind, stored), blocks * block
    assert reader.shape(HF_DOWN) == (ROWS, columns)
    assert same_bits(reader.read(HF_DOWN, None, 0, 0, CPU), whole)
    for start, stop in ((0, 1), (5, 17), (ROWS - 1, ROWS), (0, ROWS)):
        assert same_bits(reader.read(HF_DOWN, 0, start, stop, CPU), np.ascontiguousarray(whole[start:stop]))
    # on, inside and across the borders of blocks
    for start, stop in ((0, columns // 3), (3, columns - 5), (columns // 3 - 1, columns // 3 + 1), (0, columns)):
        assert same_bits(reader.read(HF_DOWN, 1, start, stop, CPU), np.ascontiguousarray(whole[:, start:stop]))


def unpermuted(values: np.ndarray, heads: int) -> np.ndarray:
    """transformers' own inverse of llama.cpp's permutation."""
    from transformers.modeling_gguf_pytorch_utils import LlamaTensorProcessor

    config = {"num_attention_heads": heads, "num_key_value_heads": heads}
    return np.ascontiguousarray(LlamaTensorProcessor(config).process(values, QUERY).weights)


@pytest.mark.parametrize(("start", "stop"), [(0, 48), (8, 16), (16, 48), (3, 29), (7, 9)])
def test_rotated_rows_are_put_back_in_order_for_any_slice(start: int, stop: int, write_gguf) -> None:
    values = np.random.default_rng(0).standard_normal((ROWS, 64), dtype=np.float32)
    kind = GGMLQuantizationType.F32
    bias = np.arange(ROWS, dtype=np.float32)
    path = write_gguf({QUERY: (kind, values), "blk.0.attn_q.bias": (kind, bias)}, "llama")
    reader = GGUFReader(path, HEAD_DIM)
    expected = unpermuted(values, ROWS // HEAD_DIM)
    assert same_bits(reader.read(HF_QUERY, 0, start, stop, CPU), expected[start:stop])
    assert same_bits(reader.read(HF_QUERY, 1, 5, 20, CPU), np.ascontiguousarray(expected[:, 5:20]))
    name = HF_QUERY.replace("weight", "bias")
    assert same_bits(reader.read(name, 0, start, stop, CPU), unpermuted(bias, ROWS // HEAD_DIM)[start:stop])


def test_gemma_norms_lose_the_one_that_was_added(write_gguf) -> None:
    values = np.linspace(0.5, 3, 16, dtype=np.float32)
    names = ("output_norm", "blk.0.attn_norm", "blk.0.attn_q_norm", "blk.0.post_ffw_norm")
    tensors = {f"{name}.weight": (GGMLQuantizationType.F32, values) for name in names}
    reader = GGUFReader(write_gguf(tensors, "gemma3"), HEAD_DIM)
    assert reader.names() == {
        "model.norm.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.post_feedforward_layernorm.weight",
    }
    for name in reader.names():
        assert same_bits(reader.read(name, None, 0, 0, CPU), values - 1)


@pytest.mark.parametrize("uri", ["smollm2", "gemma3"])
def test_real_checkpoints_equal_transformers_conventions(uri: str, request: pytest.FixtureRequest) -> None:
    """A sample with every quantisation type of the file, q and k of several layers, and all norms of one layer."""
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor

    model: ResolvedModel = request.getfixturevalue(uri)
    header = read_header(model.path)
    architecture = str(header.metadata["general.architecture"])
    q_heads = int(str(header.metadata[f"{architecture}.attention.head_count"]))
    kv_heads = int(str(header.metadata[f"{architecture}.attention.head_count_kv"]))
    head_dim = header.tensors["blk.0.attn_k.weight"].shape[0] // kv_heads
    config = {"num_attention_heads": q_heads, "num_key_value_heads": kv_heads}
    processor = TENSOR_PROCESSORS.get(architecture, TensorProcessor)(config=config)
    reader = GGUFReader(model.path, head_dim)
    by_stored = {reader._conventions.hf_name(stored): stored for stored in header.tensors}
    data = np.memmap(model.path, dtype=np.uint8, mode="r")
    checked = set()
    for name in sorted(reader.names()):
        tensor = header.tensors[by_stored[name]]
        sampled = any(f"layers.{layer}." in name for layer in (0, 5, 17)) or name == "model.norm.weight"
        if not sampled and tensor.type_name in checked:
            continue
        checked.add(tensor.type_name)
        rows = tensor.shape[0]
        raw = data[tensor.offset : tensor.offset + tensor.stored_bytes].reshape(rows, -1)
        # 256 rows of the embedding stand for all of them
        rows = min(rows, 4096) if "embed" not in name else 256
        whole = gguf.dequantize(np.array(raw[:rows]), GGMLQuantizationType[tensor.type_name]).reshape(
            rows, *tensor.shape[1:]
        )
        expected = np.ascontiguousarray(processor.process(whole, tensor.name).weights)
        assert same_bits(reader.read(name, 0, 0, rows, CPU), expected), name
    assert checked == {tensor.type_name for tensor in header.tensors.values()}


@pytest.mark.slow
@pytest.mark.parametrize("uri", ["smollm2", "gemma3"])
def test_every_tensor_equals_the_model_that_transformers_loads(uri: str, request: pytest.FixtureRequest) -> None:
    from transformers import AutoModelForCausalLM

    from motley_engine.config.architectures import model_config

    model: ResolvedModel = request.getfixturevalue(uri)
    loaded = AutoModelForCausalLM.from_pretrained(model.path.parent, gguf_file=model.path.name, dtype=torch.float32)
    expected = loaded.state_dict()
    reader = GGUFReader(model.path, model_config(model).head_dim)
    # the tied head is no tensor of the file
    assert reader.names() == set(expected) - {"lm_head.weight"}
    for name in sorted(reader.names()):
        assert torch.equal(reader.read(name, None, 0, 0, CPU).float(), expected[name]), name


def test_unknown_architecture_and_type_are_named(write_gguf) -> None:
    with pytest.raises(CheckpointError, match="'mamba' is not served; served: llama, qwen2, qwen3, gemma3"):
        GGUFReader(write_gguf({DOWN: (GGMLQuantizationType.F32, np.ones((2, 2), np.float32))}, "mamba"), HEAD_DIM)
    kind = GGMLQuantizationType.IQ4_NL
    with pytest.raises(CheckpointError, match=r"blk\.0\.ffn_down\.weight is of type IQ4_NL; supported: F32"):
        GGUFReader(write_gguf({DOWN: (kind, np.zeros((4, 18), np.uint8))}), HEAD_DIM)


@pytest.mark.parametrize("keep", [3, 40, -1])
def test_truncated_file_is_named(keep: int, write_gguf) -> None:
    path: Path = write_gguf({DOWN: (GGMLQuantizationType.F32, np.ones((64, 64), np.float32))})
    path.write_bytes(path.read_bytes()[:keep] if keep > 0 else path.read_bytes()[:-64])
    with pytest.raises(CheckpointError, match=str(path)):
        GGUFReader(path, HEAD_DIM)
