"""The header reader against files that the gguf package writes, and against damaged ones."""

import struct
from contextlib import suppress
from time import perf_counter

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley_planner.gguf_header import GGUFArray, GGUFError, read_header


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "sample.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(3)
    writer.add_float32("llama.rope.freq_base", 10_000.0)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_string("general.name", "tëst")
    writer.add_array("tokenizer.ggml.tokens", ["a", "", "ü" * 50])
    writer.add_array("tokenizer.ggml.scores", [0.5, -1.5])
    writer.add_tensor("token_embd.weight", np.arange(64, dtype=np.float32).reshape(2, 32))
    quantised = gguf.quants.quantize(np.ones((4, 64), np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blk.0.ffn_down.weight", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_and_tensors_match_what_was_written(sample):
    header = read_header(sample)
    assert header.metadata["llama.block_count"] == 3
    assert header.metadata["llama.rope.freq_base"] == 10_000.0
    assert header.metadata["tokenizer.ggml.add_bos_token"] is True
    assert header.metadata["general.name"] == "tëst"
    assert isinstance(header.metadata["tokenizer.ggml.tokens"], GGUFArray)
    assert header.array("tokenizer.ggml.tokens") == ["a", "", "ü" * 50]
    assert header.array("tokenizer.ggml.scores") == [0.5, -1.5]
    down = header.tensors["blk.0.ffn_down.weight"]
    assert (down.shape, down.type_name, down.block, down.stored_bytes) == ((4, 64), "Q8_0", 32, 4 * 2 * 34)
    with pytest.raises(KeyError):
        header.array("general.name")


def test_tensor_offsets_point_at_the_data(sample):
    header = read_header(sample)
    embedding = header.tensors["token_embd.weight"]
    raw = sample.read_bytes()[embedding.offset : embedding.offset + embedding.stored_bytes]
    assert np.array_equal(np.frombuffer(raw, np.float32).reshape(embedding.shape), np.arange(64).reshape(2, 32))


def test_header_agrees_with_the_gguf_package(sample):
    reader = gguf.GGUFReader(sample)
    ours = {
        tensor.name: (list(tensor.shape)[::-1], tensor.stored_bytes, tensor.offset)
        for tensor in read_header(sample).tensors.values()
    }
    theirs = {tensor.name: (tensor.shape.tolist(), tensor.n_bytes, tensor.data_offset) for tensor in reader.tensors}
    assert ours == theirs


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_is_a_gguf_error_or_harmless_never_a_crash(sample, tmp_path_factory, data):
    raw = bytearray(sample.read_bytes())
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            raw[data.draw(st.integers(0, min(len(raw), 600) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(raw)
    with suppress(GGUFError):
        header = read_header(path)
        assert all(tensor.offset + tensor.stored_bytes <= len(raw) for tensor in header.tensors.values())


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"", "no GGUF file"),
        (b"PK" + bytes(60), "does not start with GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0) + bytes(40), "version 1 is not supported"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**60) + bytes(40), "ends inside a value"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0) + bytes(40), "damaged"),
    ],
)
def test_unreadable_files_say_why(tmp_path, raw, fault):
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw)
    with pytest.raises(GGUFError, match=fault):
        read_header(path)


def test_a_large_vocabulary_is_skipped_quickly(tmp_path):
    path = tmp_path / "large.gguf"
    count, item = 262_144, struct.pack("<Q", 7) + b"\xe2\x96\x81word"[:7]
    key = b"tokenizer.ggml.tokens"
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
    path.write_bytes(head + struct.pack("<Q", len(key)) + key + struct.pack("<IIQ", 9, 8, count) + item * count)
    started = perf_counter()
    header = read_header(path)
    # a loaded machine still leaves a wide margin: the walk takes about 0.05 s
    assert perf_counter() - started < 1.0
    array = header.metadata[key.decode()]
    assert isinstance(array, GGUFArray)
    assert array.count == count
