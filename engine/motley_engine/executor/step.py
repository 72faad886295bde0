"""The step plan: flat arrays that tell every rank which tokens go where. Executors add nothing of their own.

A *row* is a request's line in the executors' page tables, 0 <= row < max_running. Page 0 of every pool is the sink:
padded writes land there and nothing reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]


def _ints() -> IntArray:
    return np.empty(0, np.int32)


class StepKind(IntEnum):
    DECODE = 0
    """One new token for every sequence."""
    EXTEND = 1
    """At least one sequence brings more than one token (prefill chunk); decode sequences may ride along."""
    FLUSH = 2
    """Zero the KV pools; no forward pass."""
    STOP = 3
    """Leave the loop."""


@dataclass(slots=True)
class PageUpdate:
    """Entries to write into a page table before the forward pass: ``table[rows[i], columns[i]] = pages[i]``."""

    rows: IntArray = field(default_factory=_ints)
    columns: IntArray = field(default_factory=_ints)
    pages: IntArray = field(default_factory=_ints)


@dataclass(slots=True)
class StepPlan:
    """One step for all ranks. B sequences, T tokens, ``T == q_lens.sum()``.

    ``tokens[t]`` >= 0 is a token id; -1 - row stands for the id that the last step sampled for that row (it may not be
    known on the host yet). ``kv_lens`` counts the sequence's tokens after this step. ``sample`` lists the indices into
    the B sequences whose last token's logits are sampled. ``score`` lists the token indices (into T) whose logits are
    needed as prompt logprobs.
    """

    seq: int
    kind: StepKind
    rows: IntArray = field(default_factory=_ints)
    q_lens: IntArray = field(default_factory=_ints)
    kv_lens: IntArray = field(default_factory=_ints)
    tokens: IntArray = field(default_factory=_ints)
    sample: IntArray = field(default_factory=_ints)
    score: IntArray = field(default_factory=_ints)
    full: PageUpdate = field(default_factory=PageUpdate)
    window: PageUpdate = field(default_factory=PageUpdate)


@dataclass(slots=True)
class RowSampling:
    """Per-row sampler state, sent once when a request first samples or returns from retraction (rank 0 only).

    ``prompt`` and ``output`` are the token ids seen so far, for penalties.
    """

    row: int
    prompt: IntArray
    output: IntArray
    repetition: float
    frequency: float
    presence: float
    bias_ids: IntArray
    bias_values: FloatArray


@dataclass(slots=True)
class SamplingPlan:
    """How rank 0 turns the logits of ``StepPlan.sample`` into ids; arrays have one entry per sampled sequence.

    ``uniform`` in [0, 1) is the only randomness, drawn by the scheduler from (seed, position), so results do not depend
    on the batch. ``blocked`` lists (sampled index, token id) pairs that must not be chosen (end ids before
    ``min_new_tokens``). ``state`` marks rows with penalties or bias; ``new_rows`` sets their state first.
    ``top_logprobs`` is -1 where no logprob is wanted. ``asked`` maps a sampled index to extra token ids.
    ``score_targets`` are the ids whose logprob is wanted at ``StepPlan.score``; ``score_top`` and ``score_asked`` are
    the same for its positions.
    """

    temperature: FloatArray
    top_k: IntArray
    top_p: FloatArray
    min_p: FloatArray
    uniform: FloatArray
    state: npt.NDArray[np.bool_]
    top_logprobs: IntArray
    new_rows: list[RowSampling] = field(default_factory=list)
    blocked: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 2), np.int32))
    asked: dict[int, IntArray] = field(default_factory=dict)
    score_targets: IntArray = field(default_factory=_ints)
    score_top: IntArray = field(default_factory=_ints)
    score_asked: dict[int, IntArray] = field(default_factory=dict)


@dataclass(slots=True)
class Logprobs:
    """Logprobs of N positions: the chosen (or target) id's value, the top ids and the asked ids.

    ``top_values``/``top_ids`` are [N, K] with K the largest wanted; ``asked`` maps a position to its values in order.
    """

    chosen: FloatArray
    top_values: FloatArray
    top_ids: IntArray
    asked: dict[int, FloatArray]


@dataclass(slots=True)
class StepResult:
    """What a step produced: one id per ``StepPlan.sample`` entry, and logprobs where wanted."""

    seq: int
    token_ids: IntArray
    logprobs: Logprobs | None = None
    scores: Logprobs | None = None


class PendingStep(Protocol):
    """A submitted step. ``result`` blocks at most ``timeout`` seconds and raises TimeoutError, or the step's error."""

    def result(self, timeout: float) -> StepResult: ...


class StepRunner(Protocol):
    """Rank 0's hand on all executors: broadcasts the plan and starts the step without waiting for it."""

    def submit(self, plan: StepPlan, sampling: SamplingPlan | None) -> PendingStep: ...


@dataclass(frozen=True, slots=True)
class Geometry:
    """What the executors can hold, frozen before serving. Pages include the sink page 0 (never allocated).

    ``window`` and ``window_pages`` are 0 for models without sliding-window layers; ``full_pages`` is 0 for models
    without full-attention layers. ``window_slack``: a page may be dropped only once all its positions are older than
    ``window`` tokens before the next query.
    """

    page_size: int
    full_pages: int
    window_pages: int
    window: int
    max_running: int
    max_context: int
    vocab_size: int
