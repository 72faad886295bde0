"""One rank's arithmetic: does exactly what a step plan says, in the same order of collectives as every other rank."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from motley_engine.cache.pools import KVPools
from motley_engine.comm.collectives import Collectives
from motley_engine.executor.graphs import DecodeGraphs
from motley_engine.executor.inputs import Picks, Tables
from motley_engine.executor.step import Geometry, SamplingPlan, StepKind
from motley_engine.executor.wire import Frame
from motley_engine.models import Model
from motley_engine.sampling.logprobs import DeviceLogprobs
from motley_engine.sampling.sampler import Sampler, chunk_rows
from motley_engine.sampling.upload import upload


class PlanMismatchError(RuntimeError):
    """Two ranks were about to run different plans; their collectives would have hung."""


@dataclass(slots=True)
class StepOutput:
    """What rank 0 reports of a step, still on the device. ``ids`` int64 [S]."""

    ids: torch.Tensor
    logprobs: DeviceLogprobs | None = None
    scores: DeviceLogprobs | None = None


class Worker:
    """Model, KV pools and row tables of one rank. ``step`` is not thread-safe: one thread or stream runs all steps."""

    def __init__(
        self,
        model: Model,
        pools: KVPools,
        geometry: Geometry,
        comm: Collectives,
        device: torch.device,
        compare_digests: bool = False,
    ) -> None:
        self.device = device
        self.tables = Tables(geometry, device)
        self.graphs: DecodeGraphs | None = None
        self._model = model
        self._pools = pools
        self._comm = comm
        self._compare_digests = compare_digests
        self._touched = 0
        self._score_rows = chunk_rows(geometry.vocab_size)
        self._sampler = Sampler(geometry.max_running, geometry.vocab_size, device) if comm.rank == 0 else None
        model.bind_cache(pools)

    @torch.inference_mode()
    def step(self, frame: Frame, sampling: SamplingPlan | None) -> StepOutput:
        """Run one plan. ``sampling`` is rank 0's, None on the others or where nothing is sampled or scored."""
        if frame.kind is StepKind.FLUSH:
            self._flush()
        if frame.kind in (StepKind.FLUSH, StepKind.STOP):
            return StepOutput(torch.empty(0, dtype=torch.int64, device=self.device))
        if self._compare_digests:
            self._agree(frame)
        self._touch(frame)
        payload = upload(frame.payload, self.device)
        self.tables.update(payload, frame)
        if self.graphs is not None and self.graphs.covers(frame):
            hidden = self.graphs.run(payload, frame)
        else:
            hidden = self._model.forward(*self.tables.inputs(payload, frame))
        picks = Picks.of(payload, frame)
        output = self._sample(hidden, picks, frame, sampling)
        output.scores = self._score(hidden, picks, sampling)
        return output

    def _sample(self, hidden: torch.Tensor, picks: Picks, frame: Frame, sampling: SamplingPlan | None) -> StepOutput:
        """Ids of the sampled rows on every rank, remembered for plans that name them by row."""
        count = len(picks.sample_at)
        output = StepOutput(torch.empty(count, dtype=torch.int64, device=self.device))
        if count == 0:
            return output
        logits = self._model.logits(hidden[picks.sample_at])
        if self._sampler is not None:
            if sampling is None or logits is None:
                raise ValueError(
                    f"step plan {frame.seq}: {count} sequences to sample, but no sampling plan or no logits"
                )
            rows, sample = (frame.payload[frame.spans()[name]] for name in ("rows", "sample"))
            output.ids, output.logprobs = self._sampler.ids(logits, sampling, rows[sample])
        output.ids = self._comm.broadcast(output.ids)
        self.tables.last_tokens[picks.sample_rows] = output.ids
        return output

    def _score(self, hidden: torch.Tensor, picks: Picks, sampling: SamplingPlan | None) -> DeviceLogprobs | None:
        """Logprobs of the scored prompt tokens on rank 0; the others take part in the logits of each chunk."""
        count = len(picks.score_at)

        def logits(start: int, stop: int) -> torch.Tensor | None:
            return self._model.logits(hidden[picks.score_at[start:stop]])

        if count == 0:
            return None
        if self._sampler is not None and sampling is not None:
            return self._sampler.scores(count, logits, sampling)
        for start in range(0, count, self._score_rows):
            logits(start, min(start + self._score_rows, count))
        return None

    def _touch(self, frame: Frame) -> None:
        """Remember the highest page in use: pools on CPU take memory only where they were written."""
        spans = frame.spans()
        for pool in ("full_pages", "window_pages"):
            self._touched = max(self._touched, int(frame.payload[spans[pool]].max(initial=0)))

    def _flush(self) -> None:
        """Zero every page ever used."""
        for pair in self._pools.layers:
            for pool in pair:
                pool[: self._touched + 1].zero_()
        self._touched = 0

    def _agree(self, frame: Frame) -> None:
        mine = frame.digest
        theirs = int(self._comm.broadcast(torch.tensor([mine], device=self.device)).item())
        if mine != theirs:
            raise PlanMismatchError(
                f"step plan {frame.seq}: digest {mine:#x} on rank {self._comm.rank}, {theirs:#x} on rank 0"
            )
