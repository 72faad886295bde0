"""The unit split: one dimension cut into integer units for all ranks at once. Integers only: every process agrees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import gcd, lcm


class PartitionError(ValueError):
    """A dimension cannot be cut as asked. The text names the dimension, the unit and the vector."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Rank ``rank``'s elements [start, stop) of a dimension with ``total`` elements.

    ``size`` may reach beyond ``total`` only where the dimension is padded (vocabulary); ``real`` then counts the
    elements that exist in the checkpoint.
    """

    rank: int
    start: int
    size: int
    total: int

    @property
    def stop(self) -> int:
        return self.start + self.size

    @property
    def real(self) -> int:
        return max(0, min(self.stop, self.total) - self.start)


@dataclass(frozen=True, slots=True)
class UnitTable:
    """Sizes and offsets of one dimension for all ranks: rank r owns ``counts[r]`` units of ``unit`` elements.

    Paired layers (qkv and o, gate/up and down) share one table object. ``total`` is the dimension in elements; only a
    padded vocabulary has fewer elements than ``unit * sum(counts)``, and then by less than one unit.
    """

    unit: int
    counts: tuple[int, ...]
    total: int

    def __post_init__(self) -> None:
        padding = self.unit * sum(self.counts) - self.total
        if self.unit < 1 or not self.counts or min(self.counts) < 0 or not 0 <= padding < self.unit:
            raise PartitionError(
                f"units {list(self.counts)} of {self.unit} elements do not make up a dimension of {self.total}"
            )

    @property
    def world(self) -> int:
        return len(self.counts)

    @property
    def units(self) -> int:
        return sum(self.counts)

    @property
    def padded(self) -> int:
        """Elements with padding: the sum of ``sizes``."""
        return self.unit * self.units

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements per rank, padding included."""
        return tuple(self.unit * count for count in self.counts)

    @property
    def starts(self) -> tuple[int, ...]:
        """First element per rank: prefix sums of ``sizes``."""
        return tuple(accumulate(self.sizes[:-1], initial=0))

    def shard(self, rank: int) -> Shard:
        """The part of ``rank``. IndexError if there is no such rank."""
        if not 0 <= rank < self.world:
            raise IndexError(f"rank {rank} of a table for {self.world} ranks")
        return Shard(rank, self.starts[rank], self.sizes[rank], self.total)


def split_units(units: int, weights: Sequence[int], minimum: int = 1, what: str = "dimension") -> tuple[int, ...]:
    """Units per rank: quotas ``units * w / sum(w)`` rounded by largest remainder, ties to the lower rank.

    Ranks below ``minimum`` (1, or 0 where zero width is declared) are filled up from the largest share. ``what`` names
    the dimension in errors. PartitionError if there are fewer units than the minimum needs or a weight is below 1.
    """
    world = len(weights)
    lowest = 1 if minimum else 0
    if not world or min(weights) < lowest or not any(weights):
        raise PartitionError(f"{what}: weights {list(weights)} must be integers of at least {lowest}, one per rank")
    if units < minimum * world:
        raise PartitionError(
            f"{what}: {units} units cannot serve {world} ranks; use at most {units // max(minimum, 1)}"
        )
    whole = sum(weights)
    shares = [units * weight // whole for weight in weights]
    remainders = [units * weight % whole for weight in weights]
    by_remainder = sorted(range(world), key=lambda rank: (-remainders[rank], rank))
    for rank in by_remainder[: units - sum(shares)]:
        shares[rank] += 1
    for rank in range(world):
        while shares[rank] < minimum:
            shares[shares.index(max(shares))] -= 1
            shares[rank] += 1
    return tuple(shares)


def reduce_vector(weights: Sequence[int]) -> tuple[int, ...]:
    """The same proportions in the smallest integers."""
    divisor = gcd(*weights) or 1
    return tuple(weight // divisor for weight in weights)


def aligned_unit(total: int, unit: int, block: int, what: str) -> int:
    """The unit of ``what``, a dimension of ``total`` elements, that keeps quantisation blocks whole.

    PartitionError if that unit does not divide the dimension.
    """
    coarse = lcm(unit, block)
    if total % coarse:
        raise PartitionError(
            f"{what}: {total} elements are no multiple of {coarse} = lcm(unit {unit}, quantisation block {block})"
        )
    return coarse
