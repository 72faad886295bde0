"""KV token ownership under decode context parallel: which rank stores a slot, and in which row of its pool."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from motley_planner.partition.units import PartitionError, reduce_vector, split_units

MAX_STRIPE = 64
"""Largest sum of a token vector: slots are dealt out in stripes of this many at most."""


def token_vector(weights: Sequence[int]) -> tuple[int, ...]:
    """``weights`` as a token vector: reduced by their gcd, and put on 64 units if their sum still exceeds 64."""
    reduced = reduce_vector(weights)
    if sum(reduced) <= MAX_STRIPE:
        return reduced
    return reduce_vector(split_units(MAX_STRIPE, reduced, what="kv tokens"))


@dataclass(frozen=True, slots=True)
class TokenOwnership:
    """The map slot -> (owner, row) for a token vector. Slot 0 is the sink; real slots are 1 .. capacity."""

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.counts or min(self.counts) < 1 or sum(self.counts) > MAX_STRIPE:
            raise PartitionError(
                f"kv tokens: {list(self.counts)} must be positive integers with a sum of at most {MAX_STRIPE}"
            )

    @property
    def stripe(self) -> int:
        """Slots in one round over all ranks."""
        return sum(self.counts)

    @property
    def starts(self) -> tuple[int, ...]:
        """First slot of each rank inside a stripe."""
        return tuple(accumulate(self.counts[:-1], initial=0))

    def owner(self, slot: int) -> int:
        """The rank that stores ``slot``."""
        return bisect_right(self.starts, slot % self.stripe) - 1

    def row(self, slot: int) -> int:
        """Index of ``slot`` in its owner's pool."""
        rank = self.owner(slot)
        return slot // self.stripe * self.counts[rank] + slot % self.stripe - self.starts[rank]

    def capacity(self, rows: Sequence[int]) -> int:
        """Slots for all ranks, where rank r affords ``rows[r]`` rows beyond one stripe of its own."""
        return min(have // count for have, count in zip(rows, self.counts, strict=True)) * self.stripe

    def rows(self, capacity: int) -> tuple[int, ...]:
        """Pool rows each rank allocates for ``capacity`` slots and the sink's stripe."""
        return tuple((capacity // self.stripe + 1) * count for count in self.counts)
