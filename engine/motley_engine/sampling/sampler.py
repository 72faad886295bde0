"""Logits to token ids for one step, on rank 0 only. Nothing here waits for the device except the CPU doing the work."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from motley_engine.executor.step import FloatArray, IntArray, SamplingPlan
from motley_engine.sampling.choose import sample
from motley_engine.sampling.logprobs import DeviceLogprobs, joined, logprobs
from motley_engine.sampling.penalties import RowStates
from motley_engine.sampling.upload import upload

CHUNK_ELEMENTS = 1 << 24
"""Logits handled at once where several vocabulary-wide temporaries exist: 64 MiB of float32 each."""


def chunk_rows(vocab: int) -> int:
    """Rows of logits that are scored or sampled at once; the same on every rank, since logits are a collective."""
    return max(1, CHUNK_ELEMENTS // vocab)


class Sampler:
    """Turns logits into ids by ``SamplingPlan``s and remembers per-row state between steps."""

    def __init__(self, rows: int, vocab: int, device: torch.device) -> None:
        self._vocab = vocab
        self._device = device
        self._states = RowStates(rows, vocab, device)

    def ids(
        self, logits: torch.Tensor, plan: SamplingPlan, rows: IntArray
    ) -> tuple[torch.Tensor, DeviceLogprobs | None]:
        """Ids int64 [S] for float32 ``logits`` [S, V] (not changed), and logprobs if any row wants them.

        ``rows[i]`` is the executor row of sampled index i, whose state is updated with the new id.
        """
        for state in plan.new_rows:
            self._states.set_row(state)
        processed = self._processed(logits, plan, rows)
        greedy = (plan.temperature == 0.0) | (plan.top_k == 1)
        if greedy.all():
            ids = processed.argmax(dim=1)
        else:
            ids = self._drawn(processed, plan, greedy)
        stateful = np.flatnonzero(plan.state)
        if len(stateful):
            self._states.count(rows[stateful], ids[upload(stateful, self._device)])
        wanted = bool((plan.top_logprobs >= 0).any())
        return ids, logprobs(logits, ids, plan.top_logprobs, plan.asked) if wanted else None

    def scores(
        self, rows: int, logits: Callable[[int, int], torch.Tensor | None], plan: SamplingPlan
    ) -> DeviceLogprobs:
        """Logprobs of the ``rows`` prompt positions of ``plan.score_targets``.

        ``logits(start, stop)`` computes float32 [stop - start, V]; it is called for consecutive chunks, so that memory
        stays bounded whatever the prompt's length.
        """
        top = np.full(1, plan.score_top.max(initial=0), np.int32)
        step = chunk_rows(self._vocab)
        starts = list(range(0, rows, step))
        parts = []
        for start in starts:
            stop = min(start + step, rows)
            targets = upload(plan.score_targets[start:stop].astype(np.int64), self._device)
            asked = {p - start: ids for p, ids in plan.score_asked.items() if start <= p < stop}
            part = logits(start, stop)
            if part is None:
                raise ValueError("logits are gathered on rank 0, which alone scores")
            parts.append(logprobs(part, targets, top, asked))
        return joined(parts, starts)

    def _processed(self, logits: torch.Tensor, plan: SamplingPlan, rows: IntArray) -> torch.Tensor:
        """``logits`` with penalties, bias and blocked ids; a copy if anything changes."""
        stateful = np.flatnonzero(plan.state)
        if not len(stateful) and not len(plan.blocked):
            return logits
        logits = logits.clone()
        if len(stateful):
            self._states.apply(logits, stateful, rows[stateful])
        if len(plan.blocked):
            at, ids = upload(plan.blocked.astype(np.int64), self._device).unbind(1)
            logits[at, ids] = -torch.inf
        return logits

    def _drawn(self, logits: torch.Tensor, plan: SamplingPlan, greedy: np.ndarray) -> torch.Tensor:
        """Greedy rows take the largest logit, the others are drawn, a bounded number at a time."""
        ids = logits.argmax(dim=1)
        drawn = np.flatnonzero(~greedy)
        step = chunk_rows(self._vocab)
        for start in range(0, len(drawn), step):
            part = drawn[start : start + step]
            index = upload(part, self._device)
            ids[index] = sample(logits[index], *_columns(plan, part))
        return ids


def _columns(plan: SamplingPlan, part: np.ndarray) -> tuple[FloatArray, IntArray, FloatArray, FloatArray, FloatArray]:
    return plan.temperature[part], plan.top_k[part], plan.top_p[part], plan.min_p[part], plan.uniform[part]
