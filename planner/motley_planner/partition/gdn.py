"""Gated-delta-net mixers over ranks: units of key heads, value heads follow, conv is cut per sub-block."""

from __future__ import annotations

from math import lcm

from motley_planner.model_facts.facts import GdnFacts
from motley_planner.partition.units import PartitionError, UnitTable


def gdn_unit(gdn: GdnFacts, block: int) -> int:
    """Key heads per unit, coarsened so that a unit's value channels are whole quantisation blocks."""
    values_per_key_head = gdn.values_per_key * gdn.value_dim
    unit = lcm(values_per_key_head, block) // values_per_key_head
    if gdn.key_heads % unit:
        raise PartitionError(
            f"linear attention: {gdn.key_heads} key heads are no multiple of {unit}, the key heads whose "
            f"{unit * values_per_key_head} value channels fill quantisation blocks of {block}"
        )
    return unit


def check_ba_tile(gdn: GdnFacts, table: UnitTable) -> None:
    """Refuse shares that give the small ``ba`` projection a width its kernel cannot take."""
    for rank, key_heads in enumerate(table.sizes):
        width = 2 * gdn.values_per_key * key_heads
        if width % gdn.ba_tile:
            raise PartitionError(
                f"linear attention: {key_heads} key heads on rank {rank} make the ba projection {width} wide, no "
                f"multiple of its kernel tile {gdn.ba_tile}; use other weights"
            )


def conv_slices(gdn: GdnFacts, table: UnitTable, rank: int) -> tuple[tuple[int, int], ...]:
    """Conv channels [start, stop) of ``rank`` inside the whole model's q, k and v sub-blocks, in that order.

    Each sub-block has its own prefix sums: one contiguous slice of all channels would mix q, k and v of other ranks.
    """
    keys = table.shard(rank)
    value_width = gdn.values_per_key * gdn.value_dim
    key_block = gdn.key_heads * gdn.key_dim
    slices = []
    for offset, width in ((0, gdn.key_dim), (key_block, gdn.key_dim), (2 * key_block, value_width)):
        slices.append((offset + keys.start * width, offset + keys.stop * width))
    return tuple(slices)
