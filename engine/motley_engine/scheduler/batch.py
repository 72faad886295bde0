"""Builds the flat arrays of a step plan, and remembers which requests its results belong to."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from motley_engine.executor.step import IntArray, PageUpdate, RowSampling, SamplingPlan, StepKind, StepPlan
from motley_engine.scheduler.admission import Chunk
from motley_engine.scheduler.randomness import uniform
from motley_engine.scheduler.request import Request
from motley_engine.scheduler.rows import Rows


@dataclass(slots=True)
class Scored:
    """Prompt positions [start, stop) whose logprobs a step computes, in the order of ``StepPlan.score``."""

    request: Request
    start: int
    stop: int


@dataclass(slots=True)
class Step:
    """A planned step. ``sampled`` has the request of each sampled id."""

    plan: StepPlan
    sampling: SamplingPlan | None
    sampled: list[Request] = field(default_factory=list)
    scored: list[Scored] = field(default_factory=list)


class StepBuilder:
    """Turns decode rows and prefill chunks, whose pages are already in place, into a Step. Sequences stand in this
    order: decode rows ascending, then chunks."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._seq = 0

    def control(self, kind: StepKind) -> Step:
        """A step without tokens: FLUSH or STOP."""
        return Step(StepPlan(self._next_seq(), kind), None)

    def build(self, decode: IntArray, chunks: list[Chunk], pages: tuple[PageUpdate, PageUpdate]) -> Step:
        """Number and assemble the step; counts one more sampled token for every row that samples."""
        scored, score = self._scores(len(decode), chunks)
        rows, q_lens, tokens, sample = self._sequences(decode, chunks)
        sampled_rows = rows[sample]
        plan = StepPlan(
            seq=self._next_seq(),
            kind=StepKind.EXTEND if chunks else StepKind.DECODE,
            rows=rows,
            q_lens=q_lens,
            kv_lens=self._rows.length[rows].astype(np.int32),
            tokens=tokens,
            sample=sample,
            score=score,
            full=pages[0],
            window=pages[1],
        )
        sampled = self._rows.at(sampled_rows)
        sampling = None
        if len(sampled) or len(score):
            sampling = self._sampling(sampled_rows, sampled)
            self._add_state(sampling, chunks)
            self._add_scores(sampling, scored)
        self._rows.sampled[sampled_rows] += 1
        return Step(plan, sampling, sampled, scored)

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    @staticmethod
    def _sequences(decode: IntArray, chunks: list[Chunk]) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Rows, query lengths, tokens and sampled indices. A decode token is what its row sampled last."""
        if not chunks:
            count = len(decode)
            return decode, np.ones(count, np.int32), -1 - decode, np.arange(count, dtype=np.int32)
        lengths = [chunk.stop - chunk.start for chunk in chunks]
        last = [len(decode) + i for i, chunk in enumerate(chunks) if chunk.last]
        return (
            np.concatenate((decode, np.array([chunk.request.row for chunk in chunks], np.int32))),
            np.concatenate((np.ones(len(decode), np.int32), np.array(lengths, np.int32))),
            np.concatenate((-1 - decode, *(chunk.request.context[chunk.start : chunk.stop] for chunk in chunks))),
            np.concatenate((np.arange(len(decode), dtype=np.int32), np.array(last, np.int32))),
        )

    @staticmethod
    def _scores(offset: int, chunks: list[Chunk]) -> tuple[list[Scored], IntArray]:
        """Prompt positions scored by these chunks, and the token indices whose logits predict them."""
        scored, indices = [], [np.empty(0, np.int32)]
        for chunk in chunks:
            request = chunk.request
            start, stop = request.score_next, min(chunk.stop + 1, len(request.prompt))
            if start < stop:
                # the logits at position p - 1 predict the token at p
                first = offset + start - 1 - chunk.start
                indices.append(np.arange(first, first + stop - start, dtype=np.int32))
                scored.append(Scored(request, start, stop))
                request.score_next = stop
            offset += chunk.stop - chunk.start
        return scored, np.concatenate(indices)

    def _sampling(self, rows: IntArray, sampled: list[Request]) -> SamplingPlan:
        table = self._rows
        return SamplingPlan(
            temperature=table.temperature[rows],
            top_k=table.top_k[rows],
            top_p=table.top_p[rows],
            min_p=table.min_p[rows],
            uniform=uniform(table.seed[rows], table.sampled[rows]),
            state=table.state[rows],
            top_logprobs=table.top_logprobs[rows],
            blocked=self._blocked(rows, sampled),
            asked={
                i: np.array(options.token_ids, np.int32)
                for i in np.flatnonzero(table.asks[rows]).tolist()
                if (options := sampled[i].logprobs) is not None
            },
        )

    def _blocked(self, rows: IntArray, sampled: list[Request]) -> IntArray:
        """(sampled index, id) of end ids that come too early."""
        early = np.flatnonzero(self._rows.sampled[rows] < self._rows.min_new[rows]).tolist()
        pairs = [(i, token) for i in early for token in sampled[i].sampling.stop_token_ids]
        return np.array(pairs, np.int32).reshape(-1, 2)

    @staticmethod
    def _add_state(sampling: SamplingPlan, chunks: list[Chunk]) -> None:
        """Every sampler state begins with the last chunk of a prefill: at first, and again after a retraction."""
        sampling.new_rows = [_row_state(c.request) for c in chunks if c.last and c.request.has_state]

    @staticmethod
    def _add_scores(sampling: SamplingPlan, scored: list[Scored]) -> None:
        targets, top, index = [np.empty(0, np.int32)], [np.empty(0, np.int32)], 0
        for part in scored:
            count, options = part.stop - part.start, part.request.logprobs
            assert options is not None, "scores are computed only where asked for"
            targets.append(part.request.prompt[part.start : part.stop])
            top.append(np.full(count, options.top, np.int32))
            if options.token_ids:
                ids = np.array(options.token_ids, np.int32)
                sampling.score_asked.update(dict.fromkeys(range(index, index + count), ids))
            index += count
        sampling.score_targets, sampling.score_top = np.concatenate(targets), np.concatenate(top)


def _row_state(request: Request) -> RowSampling:
    wanted, bias = request.sampling, request.sampling.logit_bias or {}
    return RowSampling(
        row=request.row,
        prompt=request.prompt,
        output=np.asarray(request.output, np.int32),
        repetition=wanted.repetition_penalty,
        frequency=wanted.frequency_penalty,
        presence=wanted.presence_penalty,
        bias_ids=np.fromiter(bias.keys(), np.int32, len(bias)),
        bias_values=np.fromiter(bias.values(), np.float32, len(bias)),
    )
