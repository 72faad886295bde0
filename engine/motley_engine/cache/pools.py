"""The tensors behind the pages of one rank: K and V of every layer, sized by the frozen geometry."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from motley_engine.config.model import ModelConfig
from motley_engine.executor.step import Geometry
from motley_planner.partition import ModelPartition


@dataclass(frozen=True, slots=True)
class PageBytes:
    """Bytes that one page costs on a rank, K and V of all layers of its pool together."""

    full: int
    window: int


def page_bytes(
    config: ModelConfig, partition: ModelPartition, rank: int, page_size: int, dtype: torch.dtype
) -> PageBytes:
    """What a page of ``page_size`` tokens costs on ``rank`` in each pool; 0 for a pool without layers."""
    per_layer = 2 * page_size * _kv_heads(partition, rank) * config.head_dim * dtype.itemsize
    return PageBytes(
        full=per_layer * config.layer_types.count("full"),
        window=per_layer * config.layer_types.count("sliding"),
    )


@dataclass(frozen=True, slots=True)
class KVPools:
    """K and V of every model layer, each [pages, page_size, kv heads of the rank, head_dim], zero at first.

    Layers of type "full" hold ``full_pages`` pages, "sliding" ones ``window_pages``; page 0 of each is the sink.
    """

    page_size: int
    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    @classmethod
    def build(
        cls,
        geometry: Geometry,
        config: ModelConfig,
        partition: ModelPartition,
        rank: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> KVPools:
        """Allocate ``rank``'s pools. Raises ValueError if a pool that the model needs has no room for a page."""
        pages = {"full": geometry.full_pages, "sliding": geometry.window_pages}
        for kind in set(config.layer_types):
            if pages[kind] < 2:
                raise ValueError(f"KV pool of the {kind} layers: {pages[kind]} pages; needs the sink and one more")
        heads = _kv_heads(partition, rank)

        def pool(kind: str) -> torch.Tensor:
            return _zeros((pages[kind], geometry.page_size, heads, config.head_dim), dtype, device)

        return cls(geometry.page_size, tuple((pool(kind), pool(kind)) for kind in config.layer_types))

    @property
    def nbytes(self) -> int:
        return sum(k.nbytes + v.nbytes for k, v in self.layers)

    def zero(self) -> None:
        """Forget everything, in place."""
        for k, v in self.layers:
            k.zero_()
            v.zero_()


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros that, on CPU, take memory only where they are written: torch.zeros would touch the whole pool at once."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, np.uint8)).view(dtype).view(shape)


def _kv_heads(partition: ModelPartition, rank: int) -> int:
    start, stop = partition.heads.kv[rank]
    return stop - start
