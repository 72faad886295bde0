"""Real checkpoints from packages, and tiny GGUF files made on the spot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from helpers.packaged import GEMMA3, SMOLLM2, packaged

from motley_planner.sources import ResolvedModel

WriteGGUF = Callable[..., Path]


@pytest.fixture(scope="session")
def smollm2() -> ResolvedModel:
    return packaged(SMOLLM2)


@pytest.fixture(scope="session")
def gemma3() -> ResolvedModel:
    return packaged(GEMMA3)


@pytest.fixture
def write_gguf(tmp_path: Path) -> WriteGGUF:
    """Writes ``{name: (type, rows as stored)}`` to a GGUF file of ``architecture``."""

    def write(tensors: dict[str, tuple[gguf.GGMLQuantizationType, np.ndarray]], architecture: str = "qwen2") -> Path:
        path = tmp_path / f"{architecture}.gguf"
        writer = gguf.GGUFWriter(path, architecture)
        for name, (kind, stored) in tensors.items():
            raw = kind if stored.dtype == np.uint8 else None
            writer.add_tensor(name, stored, raw_dtype=raw)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write
