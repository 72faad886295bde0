"""A whole model cut for all ranks: every layer, loader and memory estimate takes its sizes from here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from motley_planner.model_facts.facts import ModelFacts
from motley_planner.partition.gdn import check_ba_tile, gdn_unit
from motley_planner.partition.heads import HeadGrid, HeadSplit, head_grid, heads_of, split_heads
from motley_planner.partition.kv_tokens import TokenOwnership
from motley_planner.partition.units import PartitionError, UnitTable, aligned_unit, split_units

ACTIVATION_UNIT = 16
"""Elements of the widest vectorised activation."""
VOCAB_UNIT = 64
"""Padded vocabulary rows per unit."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """Units per rank and family, as a plan stores them. Empty: the model lacks the family (or tokens are not split).

    ``mlp`` counts units of the dense MLP, or of the shared experts in a model that has only those.
    """

    attn: tuple[int, ...]
    mlp: tuple[int, ...]
    vocab: tuple[int, ...]
    gdn: tuple[int, ...] = ()
    expert: tuple[int, ...] = ()
    kv_tokens: tuple[int, ...] = ()

    @property
    def world(self) -> int:
        return len(self.vocab)


@dataclass(frozen=True, slots=True)
class FamilyWeights:
    """Relative share of every rank: ``base`` cuts attention and GDN, ``mlp`` dense MLPs and shared experts."""

    base: tuple[int, ...]
    mlp: tuple[int, ...]
    expert: tuple[int, ...]
    vocab: tuple[int, ...]

    @classmethod
    def of(
        cls,
        base: Sequence[int],
        mlp: Sequence[int] = (),
        expert: Sequence[int] = (),
        vocab: Sequence[int] = (),
    ) -> FamilyWeights:
        """``base`` for every family without weights of its own; the vocabulary is then even, it never inherits."""
        even = (1,) * len(base)
        return cls(tuple(base), tuple(mlp or base), tuple(expert or base), tuple(vocab or even))


@dataclass(frozen=True, slots=True)
class ModelPartition:
    """Shards of all families for all ranks.

    ``mlp`` counts columns of the dense MLP (a table of zeros if the model has none), ``vocab`` padded rows, ``gdn`` key
    heads, ``experts`` and ``shared_experts`` columns of one expert, ``tokens`` KV slots.
    """

    heads: HeadSplit
    mlp: UnitTable
    vocab: UnitTable
    gdn: UnitTable | None = None
    experts: UnitTable | None = None
    shared_experts: UnitTable | None = None
    tokens: TokenOwnership | None = None

    @property
    def world(self) -> int:
        return self.vocab.world

    @property
    def vectors(self) -> Vectors:
        """Unit counts of all families."""
        dense = self.mlp if self.mlp.total else self.shared_experts
        return Vectors(
            attn=self.heads.q.counts,
            mlp=dense.counts if dense else (),
            vocab=self.vocab.counts,
            gdn=self.gdn.counts if self.gdn else (),
            expert=self.experts.counts if self.experts else (),
            kv_tokens=self.tokens.counts if self.tokens else (),
        )


@dataclass(frozen=True, slots=True)
class Grid:
    """Units of every family of one model over ``heads.world`` ranks; 0 units where the model lacks the family."""

    heads: HeadGrid
    mlp_unit: int
    expert_unit: int
    shared_unit: int
    gdn_unit: int
    vocab_units: int


def model_grid(facts: ModelFacts, world: int, token_split: bool = False) -> Grid:
    """The units in which ``facts``' dimensions may be cut. PartitionError names a dimension that cannot be."""
    heads = head_grid(
        facts.q_heads,
        facts.kv_heads,
        world,
        head_dim=facts.head_dim,
        block=facts.blocks.attn,
        token_split=token_split,
    )
    moe, gdn, blocks = facts.moe, facts.gdn, facts.blocks
    return Grid(
        heads=heads,
        mlp_unit=_column_unit(facts.intermediate_size, blocks.mlp, "MLP columns (down_proj input)"),
        expert_unit=_column_unit(moe.expert_size, blocks.expert, "expert columns (down_proj input)") if moe else 1,
        shared_unit=_column_unit(moe.shared_size, blocks.mlp, "shared expert columns (down_proj input)") if moe else 1,
        gdn_unit=gdn_unit(gdn, blocks.gdn) if gdn else 1,
        vocab_units=-(-facts.vocab_size // VOCAB_UNIT),
    )


def split_model(facts: ModelFacts, weights: FamilyWeights, kv_tokens: Sequence[int] = ()) -> ModelPartition:
    """Cut every family of the model by its weights. PartitionError names the dimension that cannot be cut."""
    grid = model_grid(facts, len(weights.base), bool(kv_tokens))
    moe, gdn = facts.moe, facts.gdn
    return _checked(
        facts,
        ModelPartition(
            heads=split_heads(grid.heads, weights.base),
            mlp=_split_columns(facts.intermediate_size, grid.mlp_unit, weights.mlp, "MLP columns"),
            vocab=UnitTable(
                VOCAB_UNIT,
                split_units(grid.vocab_units, weights.vocab, what="vocabulary in units of 64 rows"),
                facts.vocab_size,
            ),
            gdn=_split_columns(gdn.key_heads, grid.gdn_unit, weights.base, "GDN key heads") if gdn else None,
            experts=_split_columns(moe.expert_size, grid.expert_unit, weights.expert, "expert columns")
            if moe
            else None,
            shared_experts=(
                _split_columns(moe.shared_size, grid.shared_unit, weights.mlp, "shared expert columns")
                if moe and moe.shared_size
                else None
            ),
            tokens=TokenOwnership(tuple(kv_tokens)) if kv_tokens else None,
        ),
    )


def partition_model(facts: ModelFacts, vectors: Vectors) -> ModelPartition:
    """The partition that a plan's unit counts stand for. PartitionError names vector and unit on a mismatch."""
    grid = model_grid(facts, vectors.world, bool(vectors.kv_tokens))
    moe, gdn = facts.moe, facts.gdn
    dense = facts.intermediate_size
    shared = moe.shared_size if moe else 0
    if not (dense or shared):
        _expect_empty("mlp", vectors.mlp)
    if not moe:
        _expect_empty("expert", vectors.expert)
    if not gdn:
        _expect_empty("gdn", vectors.gdn)
    return _checked(
        facts,
        ModelPartition(
            heads=heads_of(grid.heads, vectors.attn),
            mlp=_table("mlp", grid.mlp_unit, vectors.mlp, dense, vectors.world) if dense else _absent(vectors.world),
            vocab=_table("vocab", VOCAB_UNIT, vectors.vocab, facts.vocab_size, vectors.world),
            gdn=_table("gdn", grid.gdn_unit, vectors.gdn, gdn.key_heads, vectors.world) if gdn else None,
            experts=_table("expert", grid.expert_unit, vectors.expert, moe.expert_size, vectors.world) if moe else None,
            shared_experts=_shared_table(shared, grid.shared_unit, vectors, follows=bool(dense)) if shared else None,
            tokens=TokenOwnership(vectors.kv_tokens) if vectors.kv_tokens else None,
        ),
    )


def _checked(facts: ModelFacts, partition: ModelPartition) -> ModelPartition:
    if facts.gdn and partition.gdn:
        check_ba_tile(facts.gdn, partition.gdn)
    if partition.tokens and len(partition.tokens.counts) != partition.world:
        raise PartitionError(f"kv tokens: {list(partition.tokens.counts)} for {partition.world} ranks; give one each")
    return partition


def _column_unit(columns: int, block: int, what: str) -> int:
    if columns == 0:
        return 1
    return aligned_unit(columns, gcd(columns, ACTIVATION_UNIT), block, what)


def _split_columns(columns: int, unit: int, weights: Sequence[int], what: str) -> UnitTable:
    if columns == 0:
        return _absent(len(weights))
    counts = split_units(columns // unit, weights, what=f"{what} ({columns} in units of {unit})")
    return UnitTable(unit, counts, columns)


def _shared_table(columns: int, unit: int, vectors: Vectors, follows: bool) -> UnitTable:
    """Shared experts follow the dense MLP's shares where a model has both, else the vector counts their own units."""
    if follows:
        return _split_columns(columns, unit, vectors.mlp, "shared expert columns")
    return _table("mlp", unit, vectors.mlp, columns, vectors.world)


def _absent(world: int) -> UnitTable:
    return UnitTable(1, (0,) * world, 0)


def _table(family: str, unit: int, counts: Sequence[int], total: int, world: int) -> UnitTable:
    units = -(-total // unit)
    if len(counts) != world or sum(counts) != units or min(counts) < 1:
        raise PartitionError(
            f"{family} vector {list(counts)}: needs {world} positive entries that sum to {units} units of {unit} "
            f"(dimension {total})"
        )
    return UnitTable(unit, tuple(counts), total)


def _expect_empty(family: str, counts: Sequence[int]) -> None:
    if counts:
        raise PartitionError(f"{family} vector {list(counts)}: the model has no such layers; leave it out")
