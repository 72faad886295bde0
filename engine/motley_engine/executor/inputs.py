"""From a step plan's flat arrays to what the model reads: page tables, last tokens, positions and slots.

Tensor arithmetic only: nothing here loops over tokens or sequences, and on CUDA nothing waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from motley_engine.executor.step import Geometry
from motley_engine.executor.wire import Frame
from motley_engine.layers.context import AttentionMeta, ForwardContext


@dataclass(slots=True)
class Picks:
    """Which hidden states become logits: token indices int64 ``sample_at`` [S] and ``score_at``; ``sample_rows`` int64
    [S] is the row of each sampled token."""

    sample_at: torch.Tensor
    sample_rows: torch.Tensor
    score_at: torch.Tensor

    @classmethod
    def of(cls, payload: torch.Tensor, frame: Frame) -> Picks:
        spans = frame.spans()
        sample = payload[spans["sample"]].long()
        ends = torch.cumsum(payload[spans["q_lens"]], 0)
        return cls(ends[sample] - 1, payload[spans["rows"]][sample].long(), payload[spans["score"]].long())


class Tables:
    """The rows' memory on one rank: their pages in each pool and the last id that each produced.

    Row ``max_running`` is padding: its pages are the sink. ``window`` is None for models without sliding layers.
    """

    def __init__(self, geometry: Geometry, device: torch.device) -> None:
        rows, columns = geometry.max_running + 1, -(-geometry.max_context // geometry.page_size)
        self.page_size = geometry.page_size
        self.padding_row = geometry.max_running
        self.full = torch.zeros(rows, columns, dtype=torch.int32, device=device)
        self.window = torch.zeros_like(self.full) if geometry.window_pages else None
        self.last_tokens = torch.zeros(rows, dtype=torch.int64, device=device)

    def update(self, payload: torch.Tensor, frame: Frame) -> None:
        """Write the plan's page updates; ``payload`` int32 is the frame's, on the device."""
        spans = frame.spans()
        for table, pool in ((self.full, "full"), (self.window, "window")):
            rows, columns, pages = (payload[spans[f"{pool}_{part}"]] for part in ("rows", "columns", "pages"))
            if table is not None and len(rows):
                table[rows.long(), columns.long()] = pages

    def resolve(self, tokens: torch.Tensor) -> torch.Tensor:
        """int32 plan tokens [T] to ids int64 [T]: -1 - row becomes the id that row produced last."""
        wanted = tokens.long()
        return torch.where(wanted < 0, self.last_tokens[(-1 - wanted).clamp_(min=0)], wanted)

    def meta(self, table: torch.Tensor, rows: torch.Tensor, of_token: torch.Tensor, at: torch.Tensor) -> AttentionMeta:
        """One pool's side of a step: ``rows`` int64 [B]; tokens belong to rows ``of_token`` at positions ``at`` [T]."""
        pages = table[of_token, at // self.page_size].long()
        return AttentionMeta(page_table=table[rows], slots=pages * self.page_size + at % self.page_size)

    def decode_context(self, rows: torch.Tensor, kv_lens: torch.Tensor, max_kv: int) -> ForwardContext:
        """Context of one new token per sequence: ``rows`` and ``kv_lens`` int32 [B]. Static shapes suit graphs.

        Sequences with kv length 0 are padding and write to the sink.
        """
        wide = rows.long()
        positions = (kv_lens.long() - 1).clamp_(min=0)
        return ForwardContext(
            positions=positions,
            q_starts=torch.arange(len(rows) + 1, dtype=torch.int32, device=rows.device),
            kv_lens=kv_lens,
            decode=True,
            max_q=1,
            max_kv=max_kv,
            full=self.meta(self.full, wide, wide, positions),
            sliding=None if self.window is None else self.meta(self.window, wide, wide, positions),
        )

    def extend_context(
        self, rows: torch.Tensor, q_lens: torch.Tensor, kv_lens: torch.Tensor, frame: Frame
    ) -> ForwardContext:
        """Context of a step with several new tokens for some sequences; all arguments int32 [B]."""
        tokens = frame.count("tokens")
        wide = rows.long()
        q_starts = torch.zeros(len(rows) + 1, dtype=torch.int32, device=rows.device)
        torch.cumsum(q_lens, 0, dtype=torch.int32, out=q_starts[1:])
        # what to add to a token's index in the step to get its position in the sequence
        shift = (kv_lens - q_lens - q_starts[:-1]).long()
        both = torch.stack((wide, shift)).repeat_interleave(q_lens, dim=1, output_size=tokens)
        positions = torch.arange(tokens, device=rows.device) + both[1]
        return ForwardContext(
            positions=positions,
            q_starts=q_starts,
            kv_lens=kv_lens,
            decode=False,
            max_q=frame.max_q,
            max_kv=frame.max_kv,
            full=self.meta(self.full, wide, both[0], positions),
            sliding=None if self.window is None else self.meta(self.window, wide, both[0], positions),
        )

    def inputs(self, payload: torch.Tensor, frame: Frame) -> tuple[torch.Tensor, ForwardContext]:
        """Token ids int64 [T] and context of ``frame``'s forward pass; page updates must have been written."""
        spans = frame.spans()
        rows, q_lens, kv_lens, tokens = (payload[spans[name]] for name in ("rows", "q_lens", "kv_lens", "tokens"))
        if frame.max_q == 1:
            context = self.decode_context(rows, kv_lens, frame.max_kv)
        else:
            context = self.extend_context(rows, q_lens, kv_lens, frame)
        return self.resolve(tokens), context
