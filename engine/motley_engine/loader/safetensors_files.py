"""Slices of a safetensors checkpoint: one file, or shards behind an index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from motley_engine.loader.errors import CheckpointError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
FLOATS = ("F64", "F32", "F16", "BF16")

_RENAMED = (
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("language_model.lm_head.", "lm_head."),
)
"""Where multimodal checkpoints keep their text model, and where a text-only checkpoint has it."""


class SafetensorsReader:
    """CheckpointReader of a directory of safetensors files. Reads are safe from several threads."""

    def __init__(self, directory: Path) -> None:
        self._files: dict[str, Any] = {}
        self._places: dict[str, tuple[str, str]] = {}
        for stored, file in _weight_map(directory).items():
            self._places[_text_name(stored)] = (file, stored)
        for file in sorted({file for file, _ in self._places.values()}):
            self._files[file] = _open(directory / file)
        self._directory = directory
        self._check_present()

    def names(self) -> frozenset[str]:
        return frozenset(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._slice(name).get_shape())

    def read(self, name: str, dim: int | None, start: int, stop: int, device: torch.device) -> torch.Tensor:
        part = self._slice(name)
        dtype = part.get_dtype()
        if dtype not in FLOATS:
            raise CheckpointError(
                f"{self._directory}: tensor {name} is of type {dtype}; only unquantised checkpoints "
                f"({', '.join(FLOATS)}) are read"
            )
        if dim is None:
            values = part[:] if part.get_shape() else part[...]
        else:
            values = part[(slice(None),) * dim + (slice(start, stop),)]
        tensor: torch.Tensor = values.to(device)
        return tensor

    def _slice(self, name: str) -> Any:
        file, stored = self._places[name]
        return self._files[file].get_slice(stored)

    def _check_present(self) -> None:
        held = {file: set(handle.keys()) for file, handle in self._files.items()}
        for file, stored in self._places.values():
            if stored not in held[file]:
                raise CheckpointError(f"{self._directory / file}: lacks {stored}, which {INDEX} places there")


def _weight_map(directory: Path) -> dict[str, str]:
    """Stored tensor name -> file name."""
    index = directory / INDEX
    if index.is_file():
        try:
            placed = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return {str(name): str(file) for name, file in placed.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{index}: damaged index: {error!r}") from error
    file = _only_file(directory)
    return dict.fromkeys(_open(directory / file).keys(), file)


def _only_file(directory: Path) -> str:
    if (directory / SINGLE).is_file():
        return SINGLE
    found = sorted(path.name for path in directory.glob("*.safetensors"))
    if len(found) != 1:
        what = f"{len(found)} safetensors files without {INDEX}" if found else f"neither {INDEX} nor {SINGLE}"
        raise CheckpointError(f"{directory}: {what}; give a complete Hugging Face checkpoint in safetensors")
    return found[0]


def _open(path: Path) -> Any:
    if not path.is_file():
        raise CheckpointError(f"{path}: missing, although {INDEX} names it; download the checkpoint again")
    try:
        return safe_open(str(path), framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: damaged or incomplete safetensors file: {error}") from error


def _text_name(stored: str) -> str:
    for prefix, replacement in _RENAMED:
        if stored.startswith(prefix):
            return replacement + stored[len(prefix) :]
    return stored
