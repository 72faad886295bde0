"""A step plan as one record: a header of int64 words, then every array back to back as int32.

Ranks upload the payload in one copy and slice it on the device, so its layout is also the executors' input layout.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from motley_engine.executor.step import IntArray, StepKind, StepPlan

FIELDS = (
    "rows",
    "q_lens",
    "kv_lens",
    "tokens",
    "sample",
    "score",
    "full_rows",
    "full_columns",
    "full_pages",
    "window_rows",
    "window_columns",
    "window_pages",
)
_MAGIC = 0x4D4F544C45590001
# magic, seq, kind, max_q, max_kv, digest, then one count per field
_HEADER_WORDS = 6 + len(FIELDS)


class WireError(ValueError):
    """Bytes that are no step plan, or a plan out of sequence."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A step plan ready to run. ``payload`` int32 holds the arrays of ``FIELDS`` in order, ``counts`` their lengths."""

    seq: int
    kind: StepKind
    max_q: int
    max_kv: int
    counts: tuple[int, ...]
    payload: IntArray

    @property
    def digest(self) -> int:
        """31-bit checksum of kind and shapes; equal on all ranks or their collectives would not match."""
        words = np.array((self.seq, self.kind, self.max_q, self.max_kv, *self.counts), np.int64)
        return zlib.crc32(words.tobytes()) & 0x7FFFFFFF

    def count(self, field: str) -> int:
        return self.counts[FIELDS.index(field)]

    def spans(self) -> dict[str, slice]:
        """Where each field lies in the payload."""
        stops = list(accumulate(self.counts))
        return {name: slice(stop - count, stop) for name, count, stop in zip(FIELDS, self.counts, stops, strict=True)}

    def parts(self) -> Sequence[memoryview]:
        """The record: header and payload as bytes."""
        head = np.array((_MAGIC, self.seq, self.kind, self.max_q, self.max_kv, self.digest, *self.counts), np.int64)
        return head.view(np.uint8).data, self.payload.view(np.uint8).data


def pack(plan: StepPlan) -> Frame:
    """Flatten ``plan``, checking that its lengths agree. WireError names the field that does not fit."""
    _check(plan)
    arrays = _arrays(plan)
    return Frame(
        seq=plan.seq,
        kind=plan.kind,
        max_q=int(plan.q_lens.max(initial=0)),
        max_kv=int(plan.kv_lens.max(initial=0)),
        counts=tuple(len(array) for array in arrays),
        payload=np.concatenate(arrays, dtype=np.int32, casting="same_kind"),
    )


def unpack(data: memoryview, expected_seq: int | None = None) -> Frame:
    """The frame inside a record; its payload is a view of ``data``. WireError if it is malformed or out of sequence."""
    if len(data) < _HEADER_WORDS * 8:
        raise WireError(f"step plan: record of {len(data)} bytes")
    head: npt.NDArray[np.int64] = np.frombuffer(data, np.int64, _HEADER_WORDS)
    magic, seq, kind, max_q, max_kv, digest, *counts = (int(word) for word in head)
    if magic != _MAGIC:
        raise WireError(f"step plan: record starts with {magic:#x}")
    payload: IntArray = np.frombuffer(data, np.int32, offset=_HEADER_WORDS * 8)
    frame = Frame(seq, StepKind(kind), max_q, max_kv, tuple(counts), payload)
    if frame.digest != digest or len(payload) != sum(counts):
        raise WireError(f"step plan {seq}: digest {frame.digest} of its shapes, {digest} in its header")
    if expected_seq is not None and seq != expected_seq:
        raise WireError(f"step plan {seq} where {expected_seq} was due")
    return frame


def longest(max_running: int, max_tokens: int, columns: int) -> int:
    """Bytes of the longest record: ``max_tokens`` tokens a step and every page-table entry of it rewritten."""
    per_sequence = 4 * max_running
    per_token = 2 * max_tokens
    updates = 2 * 3 * (min(max_tokens, max_running * columns) + max_running * columns)
    return _HEADER_WORDS * 8 + 4 * (per_sequence + per_token + updates)


def _arrays(plan: StepPlan) -> tuple[IntArray, ...]:
    return (
        plan.rows,
        plan.q_lens,
        plan.kv_lens,
        plan.tokens,
        plan.sample,
        plan.score,
        plan.full.rows,
        plan.full.columns,
        plan.full.pages,
        plan.window.rows,
        plan.window.columns,
        plan.window.pages,
    )


def _check(plan: StepPlan) -> None:
    sequences = len(plan.rows)
    if len(plan.q_lens) != sequences or len(plan.kv_lens) != sequences:
        raise WireError(
            f"step plan {plan.seq}: {sequences} rows, {len(plan.q_lens)} q_lens, {len(plan.kv_lens)} kv_lens"
        )
    if int(plan.q_lens.sum()) != len(plan.tokens):
        raise WireError(f"step plan {plan.seq}: {len(plan.tokens)} tokens for q_lens of {int(plan.q_lens.sum())}")
    for name, update in (("full", plan.full), ("window", plan.window)):
        if not len(update.rows) == len(update.columns) == len(update.pages):
            raise WireError(f"step plan {plan.seq}: {name} page update of unequal lengths")
