"""Reads a GGUF file's metadata and tensor table, never its weights.

Arrays (vocabulary, merges) are skipped and decoded only when asked for, so a 262k-token vocabulary costs a walk over
its string lengths and no Python objects.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

Scalar = int | float | bool | str

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_FORMATS: Mapping[int, str] = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_MAX_DIMS = 4


class GGUFError(ValueError):
    """A file that is no readable GGUF. The text names the file and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class GGUFArray:
    """An array left in the file: ``count`` items of GGUF value type ``item_type`` from byte ``offset`` on."""

    item_type: int
    count: int
    offset: int


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """One entry of the tensor table. ``shape`` is in row-major order (the file's dimensions reversed); ``offset`` is
    absolute; quantisation blocks of ``block`` elements lie along the last dimension."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    block: int
    block_bytes: int
    offset: int

    @property
    def params(self) -> int:
        return prod(self.shape)

    @property
    def stored_bytes(self) -> int:
        return self.params // self.block * self.block_bytes


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """Metadata scalars by key, arrays as places in the file, and the tensor table by name."""

    path: Path
    version: int
    metadata: Mapping[str, Scalar | GGUFArray]
    tensors: Mapping[str, GGUFTensor]

    def array(self, key: str) -> list[Any]:
        """The decoded array ``key``. KeyError if it is absent or no array."""
        place = self.metadata[key]
        if not isinstance(place, GGUFArray):
            raise KeyError(f"{key} is no array")
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return list(_Cursor(data, place.offset).items(place.item_type, place.count))


class _Cursor:
    """A position in the file's bytes; reading past the end raises struct.error or ValueError."""

    def __init__(self, data: mmap.mmap, offset: int = 0) -> None:
        self.data = data
        self.offset = offset

    def number(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self.offset)
        self.offset += struct.calcsize("<" + code)
        return value

    def take(self, length: int) -> bytes:
        end = self.offset + length
        if end > len(self.data):
            raise ValueError(f"the file ends inside a value of {length} bytes")
        chunk = self.data[self.offset : end]
        self.offset = end
        return chunk

    def string(self) -> str:
        return self.take(self.number("Q")).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Scalar | GGUFArray:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.skip_array()
        scalar: Scalar = self.number(_format(kind))
        return scalar

    def items(self, kind: int, count: int) -> Iterator[Any]:
        if kind == _STRING:
            for _ in range(count):
                yield self.string()
        else:
            yield from struct.unpack_from(f"<{count}{_format(kind)}", self.data, self.offset)

    def skip_array(self) -> GGUFArray:
        item_type, count = self.number("I"), self.number("Q")
        place = GGUFArray(item_type, count, self.offset)
        if item_type == _STRING:
            self._skip_strings(count)
        else:
            self.offset += count * struct.calcsize("<" + _format(item_type))
        if self.offset > len(self.data):
            raise ValueError(f"the file ends inside an array of {count} items")
        return place

    def _skip_strings(self, count: int) -> None:
        # one bound call per string: this loop dominates the time for large vocabularies
        unpack, data, offset = struct.Struct("<Q").unpack_from, self.data, self.offset
        for _ in range(count):
            offset += 8 + unpack(data, offset)[0]
        self.offset = offset


def _format(kind: int) -> str:
    code = _FORMATS.get(kind)
    if code is None:
        raise ValueError(f"value type {kind} is unknown")
    return code


def read_header(path: Path) -> GGUFHeader:
    """Metadata and tensor table of the GGUF file ``path`` (versions 2 and 3). GGUFError if it cannot be read."""
    if not path.is_file() or path.stat().st_size < len(_MAGIC) + 20:
        raise GGUFError(f"{path}: no GGUF file")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _parse(path, _Cursor(data))
        except (struct.error, ValueError, OverflowError) as error:
            raise GGUFError(f"{path}: damaged GGUF header: {error}") from error


def _parse(path: Path, cursor: _Cursor) -> GGUFHeader:
    if cursor.take(len(_MAGIC)) != _MAGIC:
        raise ValueError("it does not start with GGUF")
    version = cursor.number("I")
    if version not in (2, 3):
        raise ValueError(f"version {version} is not supported (2 and 3 are)")
    tensor_count, key_count = cursor.number("Q"), cursor.number("Q")
    metadata: dict[str, Scalar | GGUFArray] = {}
    for _ in range(key_count):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.number("I"))
    entries = [_tensor(cursor) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"general.alignment is {alignment!r}")
    base = -(-cursor.offset // alignment) * alignment
    tensors = {
        entry.name: GGUFTensor(
            entry.name, entry.shape, entry.type_name, entry.block, entry.block_bytes, base + entry.offset
        )
        for entry in entries
    }
    for tensor in tensors.values():
        if tensor.offset + tensor.stored_bytes > len(cursor.data):
            raise ValueError(f"tensor {tensor.name} ends beyond the file (incomplete download?)")
    return GGUFHeader(path, version, metadata, tensors)


def _tensor(cursor: _Cursor) -> GGUFTensor:
    name, dims = cursor.string(), cursor.number("I")
    if not 1 <= dims <= _MAX_DIMS:
        raise ValueError(f"tensor {name} has {dims} dimensions")
    shape = tuple(cursor.number("Q") for _ in range(dims))[::-1]
    kind, offset = cursor.number("I"), cursor.number("Q")
    try:
        file_type = GGMLQuantizationType(kind)
    except ValueError as error:
        raise ValueError(f"tensor {name} has the unknown type {kind}") from error
    block, block_bytes = GGML_QUANT_SIZES[file_type]
    if shape[-1] % block:
        raise ValueError(f"tensor {name}: rows of {shape[-1]} elements are no multiple of its {block}-element blocks")
    return GGUFTensor(name, shape, file_type.name, block, block_bytes, offset)
