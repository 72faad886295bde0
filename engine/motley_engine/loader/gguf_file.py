"""Slices of a GGUF checkpoint, dequantised at load: only the rows and blocks a slice covers are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from motley_engine.loader.errors import CheckpointError
from motley_engine.loader.gguf_names import CONVENTIONS
from motley_planner.gguf_header import GGUFError, GGUFTensor, read_header

PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
QUANTISED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
ROTATED = ("self_attn.q_proj", "self_attn.k_proj")


class GGUFReader:
    """CheckpointReader of one GGUF file. ``head_dim`` undoes the interleaving of rotary halves in q and k rows.

    Values equal those that transformers' GGUF loading gives in float32. Reads are safe from several threads.
    """

    def __init__(self, path: Path, head_dim: int) -> None:
        try:
            header = read_header(path)
        except GGUFError as error:
            raise CheckpointError(str(error)) from error
        architecture = str(header.metadata.get("general.architecture"))
        conventions = CONVENTIONS.get(architecture)
        if conventions is None:
            known = ", ".join(CONVENTIONS)
            raise CheckpointError(f"{path}: general.architecture {architecture!r} is not served; served: {known}")
        self._path = path
        self._conventions = conventions
        self._head_dim = head_dim
        self._data = np.memmap(path, dtype=np.uint8, mode="r")
        named = ((conventions.hf_name(tensor.name), tensor) for tensor in header.tensors.values())
        self._tensors = {name: tensor for name, tensor in named if name is not None}
        self._check_types()

    def names(self) -> frozenset[str]:
        return frozenset(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def read(self, name: str, dim: int | None, start: int, stop: int, device: torch.device) -> torch.Tensor:
        tensor = self._tensors[name]
        if dim == 0 or dim is None:
            first, last = (0, tensor.shape[0]) if dim is None else (start, stop)
            values = self._rows(name, tensor, first, last)
        elif dim == len(tensor.shape) - 1:
            values = self._whole_rows_cut(name, tensor, start, stop)
        else:
            raise CheckpointError(f"{self._path}: {name} cannot be cut along dimension {dim}")
        if self._conventions.norm_offset and name.endswith("norm.weight"):
            values = values.float() - self._conventions.norm_offset
        return values.to(device)

    def _rows(self, name: str, tensor: GGUFTensor, start: int, stop: int) -> torch.Tensor:
        """Rows [start, stop) in Hugging Face order."""
        if not self._rotated(name):
            return self._decode(tensor, self._stored_rows(tensor, start, stop), (stop - start, *tensor.shape[1:]))
        # a head's rows lie interleaved, so whole heads are read and the slice is cut from them
        head = self._head_dim
        first, last = start // head * head, -(-stop // head) * head
        stored = self._decode(tensor, self._stored_rows(tensor, first, last), (last - first, *tensor.shape[1:]))
        return self._unrotate(stored)[start - first : stop - first]

    def _whole_rows_cut(self, name: str, tensor: GGUFTensor, start: int, stop: int) -> torch.Tensor:
        """Columns [start, stop) of all rows, from the blocks that hold them."""
        first, last = start // tensor.block, -(-stop // tensor.block)
        rows = self._stored_rows(tensor, 0, tensor.shape[0])
        blocks = np.ascontiguousarray(rows[:, first * tensor.block_bytes : last * tensor.block_bytes])
        width = (last - first) * tensor.block
        values = self._decode(tensor, blocks, (*tensor.shape[:-1], width))
        offset = start - first * tensor.block
        values = values[..., offset : offset + stop - start]
        return self._unrotate(values) if self._rotated(name) else values

    def _stored_rows(self, tensor: GGUFTensor, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Bytes of rows [start, stop) as [rows, bytes per row]; a one-dimensional tensor has one-element rows."""
        row_bytes = tensor.stored_bytes // tensor.shape[0]
        begin = tensor.offset + start * row_bytes
        flat: npt.NDArray[np.uint8] = self._data[begin : begin + (stop - start) * row_bytes]
        return flat.reshape(stop - start, row_bytes)

    def _decode(self, tensor: GGUFTensor, stored: npt.NDArray[np.uint8], shape: tuple[int, ...]) -> torch.Tensor:
        if (plain := PLAIN.get(tensor.type_name)) is not None:
            # the copy makes the bytes writable and aligned; both are needed for a tensor's view
            return torch.from_numpy(np.array(stored)).view(-1).view(plain).view(shape)
        return torch.from_numpy(dequantize(stored, GGMLQuantizationType[tensor.type_name])).view(shape)

    def _rotated(self, name: str) -> bool:
        return self._conventions.rotated and any(part in name for part in ROTATED)

    def _unrotate(self, stored: torch.Tensor) -> torch.Tensor:
        """Stored row 2i + j of a head is row j * head_dim/2 + i."""
        heads = stored.view(-1, self._head_dim // 2, 2, *stored.shape[1:])
        return heads.transpose(1, 2).reshape(stored.shape)

    def _check_types(self) -> None:
        for tensor in self._tensors.values():
            if tensor.type_name not in PLAIN and tensor.type_name not in QUANTISED:
                known = ", ".join((*PLAIN, *QUANTISED))
                raise CheckpointError(
                    f"{self._path}: tensor {tensor.name} is of type {tensor.type_name}; supported: {known}"
                )
