"""What one forward pass needs to know beside its tokens: positions, lengths and where K/V live. Tensors only."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(slots=True)
class AttentionMeta:
    """One KV pool's side of a step. B sequences, T new tokens.

    ``page_table`` int32 [B, columns]: the page of positions [column * page_size, (column + 1) * page_size).
    ``slots`` int64 [T]: flat slot (page * page_size + offset) that takes each new token's K and V.
    """

    page_table: torch.Tensor
    slots: torch.Tensor


@dataclass(slots=True)
class ForwardContext:
    """One step as the model sees it.

    ``positions`` int64 [T]; ``q_starts`` int32 [B + 1], prefix sum of the new tokens per sequence; ``kv_lens`` int32
    [B], tokens per sequence after the step. ``decode`` promises that every sequence brings exactly one token (T == B).
    ``max_q`` and ``max_kv`` are host integers, at least the largest q length and kv length of the step; a captured
    graph passes upper bounds. Sequences with kv length 0 are padding. ``sliding`` is None without window layers.
    """

    positions: torch.Tensor
    q_starts: torch.Tensor
    kv_lens: torch.Tensor
    decode: bool
    max_q: int
    max_kv: int
    full: AttentionMeta
    sliding: AttentionMeta | None = None
