"""Model architectures, each written once. ``build_model`` is the only way in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch

from motley_engine.cache.pools import KVPools
from motley_engine.comm.collectives import Collectives
from motley_engine.config.model import ModelConfig
from motley_engine.layers.build import Build
from motley_engine.layers.context import ForwardContext
from motley_engine.loader.checkpoint import Piece
from motley_engine.models.decoder import Decoder
from motley_engine.models.gemma3 import Gemma3
from motley_engine.models.llama import Llama
from motley_engine.models.qwen2 import Qwen2
from motley_engine.models.qwen3 import Qwen3
from motley_kernels import Backend
from motley_planner.partition import ModelPartition

_DECODERS: dict[str, type[Decoder]] = {
    "Gemma3ForCausalLM": Gemma3,
    "LlamaForCausalLM": Llama,
    "MistralForCausalLM": Llama,
    "Qwen2ForCausalLM": Qwen2,
    "Qwen3ForCausalLM": Qwen3,
}
ARCHITECTURES = tuple(_DECODERS)
"""Names in a checkpoint's ``architectures`` that ``build_model`` knows."""


class Model(Protocol):
    """One rank's part of a decoder. Ranks call ``forward`` and ``logits`` together, in the same order."""

    def pieces(self) -> Iterator[Piece]:
        """Every checkpoint slice that this rank loads, with the parameter view that takes it."""
        ...

    def bind_cache(self, pools: KVPools) -> None:
        """Point every layer at its K and V pool; before the first ``forward`` and after any rebuild of the pools."""
        ...

    def forward(self, tokens: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        """Hidden states [T, hidden] after the final norm for ``tokens`` int64 [T]; writes the new K/V to the pools."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor | None:
        """float32 [N, vocab_size] for ``hidden`` [N, hidden] on rank 0, None on the others."""
        ...


def build_model(
    config: ModelConfig,
    partition: ModelPartition,
    rank: int,
    comm: Collectives,
    dtype: torch.dtype,
    device: torch.device,
    backend: Backend,
) -> Model:
    """``rank``'s model with unset weights on ``device``.

    ValueError for an unknown architecture, ShardMismatchError for a partition that does not fit the group or the model.
    """
    decoder = _DECODERS.get(config.architecture)
    if decoder is None:
        raise ValueError(f"architecture {config.architecture}: not supported; known are {', '.join(ARCHITECTURES)}")
    return decoder(Build(config, partition, rank, comm, dtype, device, backend))
