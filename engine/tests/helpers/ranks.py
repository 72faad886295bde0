"""Run a motley model on several ranks of this process, on pages laid out at random, against a Hugging Face model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from motley_engine.cache.pools import KVPools
from motley_engine.comm.collectives import Collectives
from motley_engine.comm.threads import run_ranks
from motley_engine.config.architectures import model_config
from motley_engine.config.model import ModelConfig
from motley_engine.executor.step import Geometry
from motley_engine.layers.context import AttentionMeta, ForwardContext
from motley_engine.loader.checkpoint import CheckpointReader
from motley_engine.loader.load import load_weights
from motley_engine.loader.open import open_checkpoint
from motley_engine.models import Model, build_model
from motley_kernels import Backend
from motley_planner.partition import FamilyWeights, ModelPartition, split_model
from motley_planner.sources import resolve_model


@dataclass(frozen=True)
class DictReader:
    """A checkpoint in memory."""

    tensors: Mapping[str, torch.Tensor]

    def names(self) -> frozenset[str]:
        return frozenset(self.tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)

    def read(self, name: str, dim: int | None, start: int, stop: int, device: torch.device) -> torch.Tensor:
        tensor = self.tensors[name]
        return (tensor if dim is None else tensor.narrow(dim, start, stop - start)).to(device)


@dataclass(frozen=True)
class Checkpoint:
    """What a rank needs to know and to read."""

    config: ModelConfig
    reader: CheckpointReader

    @classmethod
    def save(cls, hf: Any, folder: Path) -> Checkpoint:
        """Write a Hugging Face model to ``folder`` and open it as any user's checkpoint."""
        hf.save_pretrained(folder)
        source = resolve_model(str(folder))
        config = model_config(source)
        return cls(config, open_checkpoint(source, config))


def partition_of(config: ModelConfig, base: tuple[int, ...], mlp: tuple[int, ...] = ()) -> ModelPartition:
    """Cut by ``base``, the vocabulary by the same weights reversed, so that no two families share offsets."""
    return split_model(config.facts, FamilyWeights.of(base, mlp, vocab=base[::-1]))


@dataclass
class PagedSequences:
    """Page tables of some sequences over one pool. Pages of a window pool are given back, filled with NaN, as soon as
    no later query can see them."""

    page_size: int
    window: int
    tables: torch.Tensor
    free: list[int]
    held: list[list[int]] = field(default_factory=list)

    @classmethod
    def make(cls, rows: int, columns: int, page_size: int, pages: int, window: int) -> PagedSequences:
        order = (torch.randperm(pages - 1) + 1).tolist()
        return cls(page_size, window, torch.zeros(rows, columns, dtype=torch.int32), order, [[] for _ in range(rows)])

    def extend(self, rows: list[int], kv_lens: list[int]) -> None:
        for row, kv_len in zip(rows, kv_lens, strict=True):
            while len(self.held[row]) * self.page_size < kv_len:
                page = self.free.pop()
                self.tables[row, len(self.held[row])] = page
                self.held[row].append(page)

    def drop(self, rows: list[int], kv_lens: list[int]) -> list[int]:
        """Pages that left the window of the next query."""
        dropped = []
        for row, kv_len in zip(rows, kv_lens, strict=True):
            for column in range(max(0, kv_len + 1 - self.window) // self.page_size if self.window else 0):
                if self.tables[row, column]:
                    dropped.append(int(self.tables[row, column]))
                    self.tables[row, column] = 0
        self.free[:0] = dropped
        return dropped

    def meta(
        self, rows: list[int], owner: torch.Tensor, positions: torch.Tensor, device: torch.device
    ) -> AttentionMeta:
        pages = self.tables[owner, positions // self.page_size].long()
        slots = pages * self.page_size + positions % self.page_size
        return AttentionMeta(self.tables[rows].to(device), slots.to(device))


@dataclass
class Rank:
    """One rank's model with its own pools and page tables; ``run`` feeds sequences through a schedule of steps."""

    config: ModelConfig
    model: Model
    pools: KVPools
    full: PagedSequences
    sliding: PagedSequences | None
    lengths: list[int]

    @classmethod
    def make(
        cls,
        checkpoint: Checkpoint,
        partition: ModelPartition,
        comm: Collectives,
        rows: int,
        page_size: int,
        backend: Backend,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> Rank:
        device = device or torch.device("cpu")
        config = checkpoint.config
        model = build_model(config, partition, comm.rank, comm, dtype, device, backend)
        load_weights(model.pieces(), checkpoint.reader, threads=1)
        columns = -(-config.max_position // page_size) + 1
        pages, window = rows * columns + 1, config.sliding_window
        sliding = "sliding" in config.layer_types
        geometry = Geometry(
            page_size, pages, pages if sliding else 0, window, rows, config.max_position, config.vocab_size
        )
        pools = KVPools.build(geometry, config, partition, comm.rank, dtype, device)
        for pair in pools.layers:
            for pool in pair:
                pool.fill_(float("nan"))
        model.bind_cache(pools)
        tables = [PagedSequences.make(rows, columns, page_size, pages, size) for size in (0, window)]
        return cls(config, model, pools, tables[0], tables[1] if sliding else None, [0] * rows)

    @torch.inference_mode()
    def step(self, sequences: list[torch.Tensor], q_lens: Mapping[int, int]) -> torch.Tensor | None:
        """Feed the next ``q_lens[row]`` tokens of each row named; logits of all of them on rank 0."""
        rows = list(q_lens)
        starts = [self.lengths[row] for row in rows]
        counts = [q_lens[row] for row in rows]
        kv_lens = [start + count for start, count in zip(starts, counts, strict=True)]
        spans = [range(start, stop) for start, stop in zip(starts, kv_lens, strict=True)]
        positions = torch.tensor([position for span in spans for position in span])
        owner = torch.tensor([row for row, count in zip(rows, counts, strict=True) for _ in range(count)])
        tables = [table for table in (self.full, self.sliding) if table is not None]
        for table in tables:
            table.extend(rows, kv_lens)
        device = self.pools.layers[0][0].device
        metas = [table.meta(rows, owner, positions, device) for table in tables]
        tokens = torch.cat([sequences[row][span.start : span.stop] for row, span in zip(rows, spans, strict=True)])
        ctx = ForwardContext(
            positions=positions.to(device),
            q_starts=torch.tensor([0, *accumulate(counts)], dtype=torch.int32, device=device),
            kv_lens=torch.tensor(kv_lens, dtype=torch.int32, device=device),
            decode=all(count == 1 for count in counts),
            max_q=max(counts),
            max_kv=max(kv_lens),
            full=metas[0],
            sliding=metas[1] if len(metas) > 1 else None,
        )
        logits = self.model.logits(self.model.forward(tokens.to(device), ctx))
        for row, kv_len in zip(rows, kv_lens, strict=True):
            self.lengths[row] = kv_len
        if self.sliding is not None:
            self._poison(self.sliding.drop(rows, kv_lens))
        return logits

    def _poison(self, pages: list[int]) -> None:
        for kind, pair in zip(self.config.layer_types, self.pools.layers, strict=True):
            if kind == "sliding":
                for pool in pair:
                    pool[pages] = float("nan")


Schedule = list[dict[int, int]]


def logits_of(
    checkpoint: Checkpoint,
    base: tuple[int, ...],
    sequences: list[torch.Tensor],
    schedule: Schedule,
    page_size: int = 4,
    mlp: tuple[int, ...] = (),
    backend: Backend = "torch",
    device: str = "cpu",
) -> list[torch.Tensor]:
    """Logits [len, vocab] of every sequence, computed by ``len(base)`` ranks in the steps of ``schedule``."""
    partition = partition_of(checkpoint.config, base, mlp)

    def work(comm: Collectives) -> list[torch.Tensor]:
        rank = Rank.make(checkpoint, partition, comm, len(sequences), page_size, backend, device=torch.device(device))
        parts: list[list[torch.Tensor]] = [[] for _ in sequences]
        for q_lens in schedule:
            logits = rank.step(sequences, q_lens)
            if logits is not None:
                for row, part in zip(q_lens, logits.split(list(q_lens.values())), strict=True):
                    parts[row].append(part.cpu())
        return [torch.cat(rows) if rows else torch.empty(0) for rows in parts]

    return run_ranks(len(base), work)[0]
