"""Attention heads over ranks: whole kv groups while there are enough, else shared kv heads with aligned query runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from math import lcm
from typing import Literal

from motley_planner.partition.units import PartitionError, Shard, UnitTable, split_units

HeadMode = Literal["split", "replicated"]


@dataclass(frozen=True, slots=True)
class HeadGrid:
    """The units in which a model's query heads may be cut over ``world`` ranks.

    ``mode`` split: a unit is one or more kv heads with all their query heads. replicated (fewer kv heads than ranks): a
    unit is a packet of query heads and ranks share kv heads. ``unit`` counts query heads; ``token_split`` (decode
    context parallel) lets a rank's queries straddle kv groups, since every rank then projects all kv heads.
    """

    mode: HeadMode
    q_heads: int
    kv_heads: int
    unit: int
    world: int
    token_split: bool = False

    @property
    def group(self) -> int:
        """Query heads per kv head."""
        return self.q_heads // self.kv_heads

    @property
    def units(self) -> int:
        return self.q_heads // self.unit

    def straddles(self, counts: Sequence[int]) -> bool:
        """True if some rank's query range has a kv-group border strictly inside (replicated mode only)."""
        if self.mode == "split":
            return False
        stops = [self.unit * stop for stop in accumulate(counts)]
        starts = [0, *stops[:-1]]
        spans = zip(starts, stops, strict=True)
        return any(start < stop and start // self.group != (stop - 1) // self.group for start, stop in spans)

    def __str__(self) -> str:
        return f"{self.q_heads} query heads over {self.kv_heads} kv heads in units of {self.unit} query heads"


@dataclass(frozen=True, slots=True)
class HeadSplit:
    """Query and kv heads of every rank.

    ``q`` counts query heads. ``kv[r]`` is the range [start, stop) of kv heads that rank r projects and caches: only
    those its queries use, or all under token split. ``raw`` are the unit counts before the boundary rule moved them.
    """

    mode: HeadMode
    q: UnitTable
    kv: tuple[tuple[int, int], ...]
    kv_total: int
    raw: tuple[int, ...]

    @property
    def world(self) -> int:
        return self.q.world

    @property
    def aligned(self) -> bool:
        """True if the boundary rule changed the raw split."""
        return self.raw != self.q.counts

    def q_shard(self, rank: int) -> Shard:
        return self.q.shard(rank)

    def kv_shard(self, rank: int) -> Shard:
        start, stop = self.kv[rank]
        return Shard(rank, start, stop - start, self.kv_total)


def head_grid(
    q_heads: int, kv_heads: int, world: int, *, head_dim: int = 1, block: int = 1, token_split: bool = False
) -> HeadGrid:
    """The head units of a model over ``world`` ranks; ``block`` is the quantisation block along o_proj's input.

    PartitionError if query heads are no multiple of kv heads or there are fewer units than ranks.
    """
    if kv_heads < 1 or q_heads % kv_heads:
        raise PartitionError(f"attention heads: {q_heads} query heads are no multiple of {kv_heads} kv heads")
    mode: HeadMode = "split" if kv_heads >= world else "replicated"
    packet = q_heads // kv_heads if mode == "split" else kv_heads
    unit = lcm(packet * head_dim, block) // head_dim
    if q_heads % unit:
        raise PartitionError(
            f"attention heads: o_proj input of {q_heads * head_dim} elements is no multiple of {unit * head_dim} = "
            f"lcm({packet} heads of {head_dim}, quantisation block {block})"
        )
    grid = HeadGrid(mode, q_heads, kv_heads, unit, world, token_split)
    if grid.units < world:
        reason = "tp size exceeds the GQA group size" if block == 1 else f"quantisation block {block} leaves too few"
        raise PartitionError(
            f"attention heads: {grid} make {grid.units} units for {world} ranks ({reason}); "
            f"use at most {max(kv_heads, grid.units)} ranks"
        )
    return grid


def split_heads(grid: HeadGrid, weights: Sequence[int]) -> HeadSplit:
    """Cut the heads by ``weights``, moving query borders onto kv-group borders where the boundary rule asks for it.

    PartitionError if a straddling split cannot be aligned and the cache is not split by token.
    """
    raw = split_units(grid.units, weights, what=f"attention heads ({grid})")
    if not grid.straddles(raw):
        return heads_of(grid, raw)
    if grid.kv_heads >= 2 and grid.units % grid.kv_heads == 0:
        return heads_of(grid, _align(grid, tuple(weights)), raw)
    return heads_of(grid, raw)


def heads_of(grid: HeadGrid, counts: Sequence[int], raw: Sequence[int] | None = None) -> HeadSplit:
    """The split with the given units per rank, as a plan stores them. PartitionError if no kernel can serve it."""
    counts = tuple(counts)
    if len(counts) != grid.world or sum(counts) != grid.units:
        raise PartitionError(
            f"attention heads: units {list(counts)} do not sum to {grid.units} over {grid.world} ranks ({grid})"
        )
    if grid.straddles(counts) and not grid.token_split:
        raise PartitionError(
            f"attention heads: units {list(counts)} ({grid}) put a border between kv heads inside a rank's query "
            f"heads, and they cannot be aligned; use {grid.kv_heads} ranks or fewer, or other weights"
        )
    q = UnitTable(grid.unit, counts, grid.q_heads)
    return HeadSplit(grid.mode, q, _kv_ranges(grid, q), grid.kv_heads, tuple(raw or counts))


def _kv_ranges(grid: HeadGrid, q: UnitTable) -> tuple[tuple[int, int], ...]:
    if grid.mode == "replicated" and grid.token_split:
        return ((0, grid.kv_heads),) * q.world
    shards = [q.shard(rank) for rank in range(q.world)]
    return tuple((shard.start // grid.group, -(-shard.stop // grid.group)) for shard in shards)


def _align(grid: HeadGrid, weights: tuple[int, ...]) -> tuple[int, ...]:
    """One contiguous run of ranks per kv head; each run splits the head's units by its own weights."""
    per_head = grid.units // grid.kv_heads
    counts: list[int] = []
    for length in _cut_runs(weights, grid.kv_heads, per_head):
        run = weights[len(counts) : len(counts) + length]
        counts += split_units(per_head, run, what=f"attention heads ({grid})")
    return tuple(counts)


def _cut_runs(weights: tuple[int, ...], runs: int, longest: int) -> tuple[int, ...]:
    """Lengths of ``runs`` contiguous non-empty runs of at most ``longest`` ranks.

    Chosen by the smallest descending list of run weights (so the smallest largest one first), then by the
    lexicographically smallest lengths. A common element keeps the order of descending lists, so the best tail of every
    suffix is enough.
    """

    @cache
    def best(start: int, left: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        if left == 0:
            return ((), ()) if start == len(weights) else None
        options = []
        for length in range(1, min(longest, len(weights) - start) + 1):
            tail = best(start + length, left - 1)
            if tail is not None:
                run = sum(weights[start : start + length])
                options.append((tuple(sorted((run, *tail[0]), reverse=True)), (length, *tail[1])))
        return min(options, default=None)

    found = best(0, runs)
    if found is None:
        raise PartitionError(
            f"attention heads: {len(weights)} ranks do not form {runs} runs of 1 to {longest} ranks, one per kv head"
        )
    return found[1]
