"""Measure, then freeze: what each rank's budget leaves for KV pages, agreed over all ranks as one geometry.

The items are the planner's; the engine replaces its priors by what it measured after loading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import torch

from motley_engine.comm.collectives import Collectives
from motley_engine.executor.step import Geometry
from motley_planner.memory import MIB, Pools, RankMemory, Serving, pools_of
from motley_planner.model_facts import ModelFacts


class MemoryShortageError(ValueError):
    """A budget that leaves no useful KV pool. The text names the rank, the largest items and the flags that help."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Bytes of one rank, measured. None keeps the planner's figure (on CPU, where the allocator tells nothing)."""

    weights: int
    state: int
    peak: int | None = None
    graphs: int | None = None
    work: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds of the pools in tokens beside memory; None = none."""

    total_tokens: int | None
    useful_tokens: int | None


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One line of the memory table. Bytes, but ``rows`` is what the rank's own memory could hold in tokens."""

    rank: int
    card: str
    budget: int
    weights: int
    graphs: int
    peak: int
    work: int
    state: int
    kv_pool: int
    rows: int
    left: int
    limits: bool

    def in_mib(self) -> dict[str, object]:
        """For people and /get_server_info: sizes in whole MiB."""
        plain = ("rank", "card", "rows", "limits")
        return {name: value if name in plain else int(value) // MIB for name, value in asdict(self).items()}


def measured_memory(planned: RankMemory, measured: Measured) -> RankMemory:
    """The planner's items with the engine's figures in place of its priors."""
    memory = replace(
        planned,
        # what the model holds beyond the planned families is held by every rank
        replicated=planned.replicated + measured.weights - planned.weights,
        state=planned.state + measured.state,
    )
    if measured.peak is not None:
        memory = replace(memory, activations=measured.peak)
    if measured.graphs is not None:
        memory = replace(memory, graphs=measured.graphs)
    if measured.work is not None:
        memory = replace(memory, workspace=measured.work, context=0, comm=0)
    return memory


def agree(comm: Collectives, own: Pools, limits: Limits, page_size: int, device: torch.device) -> tuple[Pools, int]:
    """One capacity for all ranks, the minimum, within ``limits``; and the rank that set it. Every rank calls this."""
    mine = torch.tensor([[own.full, own.window]], dtype=torch.int64, device=device)
    every = comm.gather_columns(mine, (2,) * comm.world)
    decision = torch.zeros(3, dtype=torch.int64, device=device)
    if every is not None:
        pools = [Pools(*pair) for pair in every.view(comm.world, 2).tolist()]
        decision = torch.tensor(_least(pools, limits, page_size), dtype=torch.int64, device=device)
    full, window, limiting = comm.broadcast(decision).tolist()
    return Pools(full, window), limiting


def _least(pools: Sequence[Pools], limits: Limits, page_size: int) -> tuple[int, int, int]:
    full = min(own.full for own in pools)
    limiting = min(range(len(pools)), key=lambda rank: pools[rank].full)
    for bound in (limits.total_tokens, limits.useful_tokens):
        if bound is not None:
            full = min(full, max(bound // page_size, 1) * page_size)
    window = min(own.window for own in pools)
    return full, min(window, full), limiting


def geometry(pools: Pools, facts: ModelFacts, serving: Serving, max_context: int, vocab_size: int) -> Geometry:
    """The frozen sizes; one sink page is added to each pool that the model has."""
    page = serving.page_size
    pages = pools.full // page + 1
    kinds = set(facts.layer_types)
    full_pages = pages if "full" in kinds else 0
    window_pages = (pools.window // page + 1 if full_pages else pages) if "sliding" in kinds else 0
    return Geometry(
        page_size=page,
        full_pages=full_pages,
        window_pages=window_pages,
        window=facts.sliding_window if window_pages else 0,
        max_running=serving.max_running,
        max_context=max_context,
        vocab_size=vocab_size,
    )


def memory_row(rank: int, card: str, memory: RankMemory, own: Pools, kv_pool: int, limiting: int) -> MemoryRow:
    """``rank``'s line: ``own`` is what its memory could hold alone, ``kv_pool`` the bytes of the pools it got."""
    return MemoryRow(
        rank=rank,
        card=card,
        budget=memory.budget,
        weights=memory.weights,
        graphs=memory.graphs,
        peak=memory.activations,
        work=memory.context + memory.workspace + memory.comm,
        state=memory.state,
        kv_pool=kv_pool,
        rows=own.full,
        left=memory.free - kv_pool,
        limits=rank == limiting,
    )


def check_pool(rank: int, memory: RankMemory, facts: ModelFacts, serving: Serving) -> Pools:
    """What ``rank`` can hold alone. MemoryShortageError if that is not even one page."""
    own = pools_of(facts, serving, memory)
    if own.full >= serving.page_size:
        return own
    items = sorted(memory.items().items(), key=lambda item: -item[1])[:3]
    largest = ", ".join(f"{name} {size // MIB} MiB" for name, size in items)
    raise MemoryShortageError(
        f"--rank-gpu-memory-mib: rank {rank}'s budget of {memory.budget // MIB} MiB leaves {memory.free // MIB} MiB "
        f"for the KV pool ({largest}); raise the budget, give the rank a smaller share (--rank-tp-ratio), or lower "
        f"--chunked-prefill-size or --max-running-requests"
    )
