"""Random weights that need no checkpoint: the same for every split, device and run.

Each value depends only on (seed, tensor name, element index in the whole tensor), through an integer hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from math import prod

import torch

CHUNK_ELEMENTS = 1 << 22
"""Elements hashed at once; hashing needs some 40 bytes for each."""
STD = 0.02
"""Standard deviation of all weights but norms, as transformers initialises."""

_MASK = (1 << 32) - 1
# odd constants of a 32-bit finaliser with good avalanche (Wellons' "lowbias32")
_MIX = ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1))


class DummyReader:
    """CheckpointReader that makes the tensors of ``shapes`` up. ``norm_value`` is what norms hold (1, or 0 where the
    model adds 1 itself)."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], seed: int, norm_value: float = 1.0) -> None:
        self._shapes = dict(shapes)
        self._seed = seed
        self._norm_value = norm_value

    def names(self) -> frozenset[str]:
        return frozenset(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def read(self, name: str, dim: int | None, start: int, stop: int, device: torch.device) -> torch.Tensor:
        whole = self._shapes[name]
        ranges = [(0, size) for size in whole]
        if dim is not None:
            ranges[dim] = (start, stop)
        shape = [end - begin for begin, end in ranges]
        if name.endswith("norm.weight"):
            return torch.full(shape, self._norm_value, device=device)
        values = torch.empty(shape, device=device)
        (first, last), *others = ranges
        step = max(CHUNK_ELEMENTS // max(prod(shape[1:]), 1), 1)
        for begin in range(first, last, step):
            end = min(begin + step, last)
            index = _indices(whole, [(begin, end), *others], device)
            values[begin - first : end - first] = _uniform(index, _key(self._seed, name))
        return values


def _key(seed: int, name: str) -> int:
    """32 bits that tell tensors and seeds apart."""
    return int.from_bytes(hashlib.blake2s(f"{seed}/{name}".encode(), digest_size=4).digest(), "little")


def _indices(whole: tuple[int, ...], ranges: list[tuple[int, int]], device: torch.device) -> torch.Tensor:
    """Row-major positions in the whole tensor of the elements in ``ranges``, as int64 in the slice's shape."""
    index = torch.zeros((), dtype=torch.int64, device=device)
    for size, (begin, end) in zip(whole, ranges, strict=True):
        index = (index * size).unsqueeze(-1) + torch.arange(begin, end, device=device)
    return index


def _uniform(index: torch.Tensor, key: int) -> torch.Tensor:
    """Uniform float32 values of mean 0 and standard deviation STD, one per index."""
    bits = (index & _MASK) ^ key
    # positions beyond 2**32 fold their high half in, through its own multiplier
    bits = (bits + (index >> 32) * 0x9E3779B9) & _MASK
    for shift, factor in _MIX:
        bits = ((bits ^ (bits >> shift)) * factor) & _MASK
    # 24 bits fill a float32 exactly, so every device gives the same value; the width of a uniform is std * sqrt(12)
    return ((bits >> 8).to(torch.float32) * 2.0**-24 - 0.5) * (STD * 12**0.5)
