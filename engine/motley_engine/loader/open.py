"""Picks the reader for a model's files."""

from __future__ import annotations

from motley_engine.config.model import ModelConfig
from motley_engine.loader.checkpoint import CheckpointReader
from motley_engine.loader.dummy import DummyReader
from motley_engine.loader.errors import CheckpointError
from motley_engine.loader.gguf_file import GGUFReader
from motley_engine.loader.safetensors_files import SafetensorsReader
from motley_engine.loader.shapes import tensor_shapes
from motley_planner.sources import ResolvedModel


def open_checkpoint(
    model: ResolvedModel, config: ModelConfig, load_format: str = "auto", seed: int = 0
) -> CheckpointReader:
    """A reader of ``model``'s weights, or of random ones drawn from ``seed`` if ``load_format`` is dummy.

    CheckpointError names a file that is missing, damaged or of an unknown kind.
    """
    if load_format == "dummy":
        return DummyReader(tensor_shapes(config), seed, norm_value=0.0 if config.unit_offset_norm else 1.0)
    if model.format == "gguf":
        return GGUFReader(model.path, config.head_dim)
    if model.format == "safetensors":
        return SafetensorsReader(model.path)
    raise CheckpointError(f"{model.path}: no weights; give a complete checkpoint, or use --load-format dummy")
