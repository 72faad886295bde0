"""From a resolved configuration to a rank that can run steps: model, weights, frozen geometry, pools, graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from motley_engine.cache.pools import KVPools
from motley_engine.comm.collectives import Collectives
from motley_engine.config.resolve import Resolved
from motley_engine.executor.graphs import DecodeGraphs
from motley_engine.executor.memory import (
    Limits,
    Measured,
    MemoryRow,
    agree,
    check_pool,
    geometry,
    measured_memory,
    memory_row,
)
from motley_engine.executor.probe import probe
from motley_engine.executor.step import Geometry
from motley_engine.executor.worker import Worker
from motley_engine.loader.load import load_weights
from motley_engine.loader.open import open_checkpoint
from motley_engine.models import Model, build_model
from motley_engine.sampling.penalties import BYTES_PER_ENTRY
from motley_planner.memory import RankMemory, replica_memory

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total); stages are "load" in bytes and "graphs" in captured graphs."""


@dataclass(frozen=True, slots=True)
class RankEngine:
    """A rank ready to serve, and its line in the memory table."""

    worker: Worker
    geometry: Geometry
    row: MemoryRow


def build_rank(
    resolved: Resolved, rank: int, comm: Collectives, device: torch.device, progress: Progress
) -> RankEngine:
    """Load ``rank``'s weights, agree with the other ranks on the pools, and allocate them.

    CheckpointError for a checkpoint that does not fit, MemoryShortageError for a budget without room for a KV pool.
    """
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    model, loaded = _load(resolved, rank, comm, device, progress)
    if device.type == "cuda":
        measured = probe(model, resolved, rank, comm, device, before)
    else:
        measured = _modelled(resolved, rank, loaded)
    memory = _memory(resolved, rank, measured)
    own = check_pool(rank, memory, resolved.model.facts, resolved.serving)
    pools, limiting = agree(comm, own, _limits(resolved), resolved.serving.page_size, device)
    frozen = geometry(pools, resolved.model.facts, resolved.serving, resolved.context_length, resolved.model.vocab_size)
    kv = KVPools.build(frozen, resolved.model, resolved.partition, rank, resolved.kv_dtype, device)
    worker = Worker(model, kv, frozen, comm, device, resolved.config.runtime.debug_digest)
    if resolved.serving.graph_tokens:
        worker.graphs = DecodeGraphs(model, worker.tables, resolved.serving.graph_tokens, frozen.max_context)
        worker.graphs.capture(lambda done, total: progress("graphs", done, total))
    return RankEngine(worker, frozen, memory_row(rank, _card(resolved, rank), memory, own, kv.nbytes, limiting))


def _load(
    resolved: Resolved, rank: int, comm: Collectives, device: torch.device, progress: Progress
) -> tuple[Model, int]:
    """``rank``'s model with its weights, and their bytes."""
    config = resolved.config
    backend = config.runtime.attention_backend
    if backend == "auto":
        raise ValueError("attention_backend: still auto; resolve the configuration first")
    model = build_model(resolved.model, resolved.partition, rank, comm, resolved.dtype, device, backend)
    reader = open_checkpoint(resolved.source, resolved.model, config.model.load_format, config.model.random_seed)
    report = load_weights(
        model.pieces(), reader, config.runtime.load_threads, lambda done, total: progress("load", done, total)
    )
    return model, report.bytes


def _card(resolved: Resolved, rank: int) -> str:
    card = resolved.cards[rank]
    return f"{card.uuid} {card.product}"


def _modelled(resolved: Resolved, rank: int, weights: int) -> Measured:
    """On CPU the planner's model of activations stands: there is no allocator to ask for a peak."""
    sampler = resolved.serving.max_running * resolved.model.vocab_size * BYTES_PER_ENTRY
    return Measured(weights=weights, state=sampler if rank == 0 else 0)


def _memory(resolved: Resolved, rank: int, measured: Measured) -> RankMemory:
    budgets = [planned.budget_bytes for planned in resolved.replica.ranks]
    planned = replica_memory(resolved.model.facts, resolved.partition, resolved.serving, budgets, resolved.device)
    return measured_memory(planned.ranks[rank], measured)


def _limits(resolved: Resolved) -> Limits:
    """On CPU more pages than all rows can use would only slow down a flush; on a card they keep more prefixes."""
    serving = resolved.serving
    useful = serving.max_running * resolved.context_length if resolved.device == "cpu" else None
    return Limits(resolved.config.memory.max_total_tokens, useful)
