"""What a step's attention calls share: the batch, and which K/V head serves which query head."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(slots=True)
class PagedBatch:
    """The sequences of one step on one pool; build one per step, all layers of the pool use it.

    ``page_table`` int32 [B, columns]; ``q_starts`` int32 [B + 1]; ``kv_lens`` int32 [B], new tokens included.
    ``decode`` promises one token per sequence. ``max_q``, ``max_kv``: host-side upper bounds. ``plans`` is scratch in
    which the reference keeps what it derives from the batch, so that a batch must not change once used.
    """

    page_table: torch.Tensor
    q_starts: torch.Tensor
    kv_lens: torch.Tensor
    decode: bool
    max_q: int
    max_kv: int
    plans: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeadMap:
    """Grouped heads of a rank: its query head i uses its K/V head ``(i + offset) // group``.

    ``group`` is the model's ratio of query to K/V heads. ``offset`` is the place of the rank's first query head inside
    its group: 0 unless the split of the query heads cuts a group.
    """

    group: int
    offset: int = 0

    def kv_heads(self, q_heads: int) -> int:
        """K/V heads that ``q_heads`` query heads use."""
        return -(-(q_heads + self.offset) // self.group)

    def queries(self, kv_head: int, q_heads: int) -> tuple[int, int]:
        """[start, stop) of the query heads that use ``kv_head``."""
        start = kv_head * self.group - self.offset
        return max(start, 0), min(start + self.group, q_heads)

    def uniform(self, q_heads: int) -> bool:
        """Whether every K/V head in use serves a whole group or an equal part of one."""
        return self.kv_heads(q_heads) == 1 or (self.offset == 0 and q_heads % self.group == 0)
