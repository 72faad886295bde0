"""How much of every rank's budget goes where, and how many tokens the KV pool then holds.

Overheads are priors; the engine replaces them by what it measures after loading and before it sizes its pools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from motley_planner.model_facts import ModelFacts, Weights
from motley_planner.partition import ModelPartition, UnitTable

MIB = 1 << 20
Device = Literal["cuda", "cpu"]


@dataclass(frozen=True, slots=True)
class Serving:
    """How a replica will serve. Sizes of elements in bytes; ``weight_size`` None keeps weights as stored.

    ``context_length`` is the longest sequence that must fit (None: none in particular); ``min_tokens`` asks for a
    larger pool. ``chunk`` tokens are prefilled per step. ``graph_tokens`` is the largest captured decode batch.
    """

    context_length: int | None = None
    min_tokens: int = 0
    max_running: int = 64
    page_size: int = 16
    chunk: int = 2048
    overlap: bool = True
    graph_tokens: int = 0
    weight_size: int | None = 2
    kv_size: int = 2
    activation_size: int = 2
    state_size: int = 2

    @property
    def required_tokens(self) -> int:
        """Tokens that the pool must hold for the replica to be of use."""
        return max(self.min_tokens, self.context_length or 0, self.page_size)

    def state_slots(self, facts: ModelFacts) -> int:
        """Recurrent states held at once: one per running request (0 for a model without such layers)."""
        return self.max_running if facts.gdn else 0


@dataclass(frozen=True, slots=True)
class Overheads:
    """Bytes per rank beyond weights, activations and pools. ``comm`` is paid by groups of two ranks or more."""

    context: int
    graphs: int
    workspace: int
    comm: int

    def scaled(self, percent: int) -> Overheads:
        return Overheads(*(getattr(self, item.name) * percent // 100 for item in fields(self)))


PRIORS: dict[Device, Overheads] = {
    "cuda": Overheads(context=512 * MIB, graphs=512 * MIB, workspace=412 * MIB, comm=384 * MIB),
    # a budget for CPU ranks is for the engine's own tensors: the interpreter and its libraries are shared pages
    "cpu": Overheads(context=0, graphs=0, workspace=16 * MIB, comm=16 * MIB),
}


@dataclass(frozen=True, slots=True)
class RankMemory:
    """One rank's budget in bytes, item by item. The pools get what is left: ``free``.

    ``full_token`` and ``window_token`` are the KV bytes that one token costs in full-attention and in sliding-window
    layers on this rank.
    """

    budget: int
    attention: int
    mlp: int
    expert: int
    gdn: int
    vocab: int
    replicated: int
    context: int
    graphs: int
    workspace: int
    comm: int
    activations: int
    state: int
    full_token: int
    window_token: int

    @property
    def weights(self) -> int:
        return self.attention + self.mlp + self.expert + self.gdn + self.vocab + self.replicated

    @property
    def overhead(self) -> int:
        return self.context + self.graphs + self.workspace + self.comm + self.activations

    def items(self) -> dict[str, int]:
        """Bytes by item, all but the KV pools; they add up to ``fixed``."""
        apart = ("budget", "full_token", "window_token")
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in apart}

    @property
    def fixed(self) -> int:
        """Everything but the KV pools."""
        return self.weights + self.overhead + self.state

    @property
    def free(self) -> int:
        """Bytes left for the pools; negative if the fixed part does not fit."""
        return self.budget - self.fixed


@dataclass(frozen=True, slots=True)
class Pools:
    """Tokens that the pools hold, whole pages without the sink page: ``full`` for full-attention layers (for the window
    layers of a model that has only those), ``window`` for sliding layers (0 if there are none)."""

    full: int
    window: int


@dataclass(frozen=True, slots=True)
class ReplicaMemory:
    """All ranks' budgets, what each could hold alone, and what all can hold: the minimum over ranks."""

    ranks: tuple[RankMemory, ...]
    alone: tuple[Pools, ...]
    pools: Pools

    @property
    def tokens(self) -> int:
        """The pool's capacity in tokens."""
        return self.pools.full

    @property
    def binding_rank(self) -> int:
        """The rank that limits the pool; the lowest of equals."""
        capacities = [pools.full for pools in self.alone]
        short = [rank.free for rank in self.ranks]
        return min(range(len(self.ranks)), key=lambda rank: (capacities[rank], min(short[rank], 0), rank))

    @property
    def binding_term(self) -> str:
        """The limiting rank's largest item beside its pools: a field name of RankMemory."""
        items = self.ranks[self.binding_rank].items()
        return max(items, key=lambda name: items[name])


def window_cap(
    window: int,
    max_running: int,
    chunk: int,
    page_size: int,
    *,
    flight: int = 1,
    eviction_interval: int = 0,
    draft_tokens: int = 1,
    draft_allocation: int = 0,
) -> int:
    """Slots that sliding-window layers need at worst: per request its window, the tokens until the next eviction, the
    page being filled and the decode allocation; and the chunks in flight (1, or 2 with overlap)."""
    decode_allocation = 2 * draft_allocation if draft_allocation else page_size
    per_request = window + eviction_interval * draft_tokens + page_size + decode_allocation
    return per_request * max_running + flight * chunk + page_size


def replica_memory(
    facts: ModelFacts,
    partition: ModelPartition,
    serving: Serving,
    budgets: Sequence[int],
    device: Device,
    overheads: Overheads | None = None,
) -> ReplicaMemory:
    """The memory of a replica whose rank r may use ``budgets[r]`` bytes in all. ``overheads`` default to the priors."""
    if len(budgets) != partition.world:
        raise ValueError(f"{len(budgets)} budgets for {partition.world} ranks")
    overheads = overheads or PRIORS[device]
    ranks = tuple(
        _rank_memory(facts, partition, serving, budget, overheads, rank) for rank, budget in enumerate(budgets)
    )
    alone = tuple(pools_of(facts, serving, rank) for rank in ranks)
    pools = Pools(min(own.full for own in alone), min(own.window for own in alone))
    return ReplicaMemory(ranks, alone, pools)


def pools_of(facts: ModelFacts, serving: Serving, rank: RankMemory) -> Pools:
    """What ``rank`` could hold: both pools alike while memory is short of the window layers' worst case; beyond it
    everything goes to full attention. One sink page per pool is set aside."""
    page = serving.page_size
    full, window = rank.full_token * page, rank.window_token * page
    left = rank.free - full - window
    if left < 0:
        return Pools(0, 0)
    cap_pages = -(-_cap(facts, serving) // page)
    alike = left // (full + window)
    if not full or not window or alike <= cap_pages:
        return Pools(alike * page, alike * page if window else 0)
    return Pools((left - cap_pages * window) // full * page, cap_pages * page)


def bytes_for(facts: ModelFacts, serving: Serving, rank: RankMemory, tokens: int) -> int:
    """The budget in bytes with which ``rank`` holds a pool of ``tokens``."""
    page = serving.page_size
    pages = -(-tokens // page)
    window_pages = min(pages, -(-_cap(facts, serving) // page)) if rank.full_token else pages
    full_bytes = (pages + 1) * page * rank.full_token
    return rank.fixed + full_bytes + (window_pages + 1) * page * rank.window_token


def _cap(facts: ModelFacts, serving: Serving) -> int:
    return window_cap(
        facts.sliding_window,
        serving.max_running,
        serving.chunk,
        serving.page_size,
        flight=2 if serving.overlap else 1,
        eviction_interval=serving.page_size,
    )


def _rank_memory(
    facts: ModelFacts,
    partition: ModelPartition,
    serving: Serving,
    budget: int,
    overheads: Overheads,
    rank: int,
) -> RankMemory:
    weights, size = facts.weights, serving.weight_size
    kv_heads = partition.heads.kv_shard(rank).size
    key_heads = partition.gdn.sizes[rank] if partition.gdn else 0
    dense = partition.mlp if partition.mlp.total else partition.shared_experts
    attention = _part(weights.attn_q, size, partition.heads.q.sizes[rank], facts.q_heads)
    attention += _part(weights.attn_kv, size, kv_heads, facts.kv_heads)
    vocab = partition.vocab
    state = facts.gdn.state_bytes(serving.state_size, key_heads) if facts.gdn else 0
    return RankMemory(
        budget=budget,
        attention=attention,
        mlp=_share(weights.mlp, size, dense, rank),
        expert=_share(weights.expert, size, partition.experts, rank),
        gdn=_share(weights.gdn, size, partition.gdn, rank),
        # padded rows are held too
        vocab=_part(weights.embedding + weights.lm_head, size, vocab.sizes[rank], vocab.total),
        replicated=weights.replicated.bytes(size),
        context=overheads.context,
        graphs=overheads.graphs,
        workspace=overheads.workspace,
        comm=overheads.comm if partition.world > 1 else 0,
        activations=_activations(facts, partition, serving, rank),
        state=serving.state_slots(facts) * state,
        full_token=facts.kv_bytes("full", serving.kv_size, kv_heads),
        window_token=facts.kv_bytes("sliding", serving.kv_size, kv_heads),
    )


def _share(weights: Weights, size: int | None, table: UnitTable | None, rank: int) -> int:
    return _part(weights, size, table.sizes[rank], table.total) if table else 0


def _part(weights: Weights, size: int | None, own: int, total: int) -> int:
    return -(-weights.bytes(size) * own // total)


def _activations(facts: ModelFacts, partition: ModelPartition, serving: Serving, rank: int) -> int:
    """Tensors alive at once in the widest layer of a prefill chunk, and rank 0's float32 logits (with a copy)."""
    heads = partition.heads.q.sizes[rank] + 2 * partition.heads.kv_shard(rank).size
    columns = max(table.sizes[rank] for table in (partition.mlp, partition.shared_experts) if table)
    if partition.experts and facts.moe:
        columns += facts.moe.top_k * partition.experts.sizes[rank]
    per_token = 4 * facts.hidden_size + max(2 * heads * facts.head_dim, 3 * columns)
    tokens = serving.chunk + serving.max_running
    logits = 2 * 4 * serving.max_running * partition.vocab.padded if rank == 0 else 0
    return tokens * per_token * serving.activation_size + logits
