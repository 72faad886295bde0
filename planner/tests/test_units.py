"""The unit split: design vectors, its invariants on random input, and a literal reading of the rule as oracle."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley_planner.partition import PartitionError, UnitTable, aligned_unit, reduce_vector, split_units

WEIGHTS = st.lists(st.integers(1, 50_000), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("units", "weights", "expected"),
    [
        (136, (16, 1, 1), (121, 8, 7)),
        (1088, (16, 1, 1), (967, 61, 60)),
        (4, (30, 17, 17), (2, 1, 1)),
        (8, (30, 17, 17), (4, 2, 2)),
        (16, (3725, 2264, 2259), (7, 5, 4)),
        (16, (1, 1, 1), (6, 5, 5)),
        (10, (46, 46, 8), (5, 4, 1)),
        (3, (1000, 1, 1), (1, 1, 1)),
    ],
)
def test_design_vectors(units, weights, expected):
    assert split_units(units, weights) == expected


def test_first_rank_of_the_fp8_example_has_15488_elements():
    table = UnitTable(128, split_units(136, (16, 1, 1)), 17_408)
    assert table.sizes[0] == 15_488
    assert sum(table.sizes) == 17_408


def literal_split(units, weights):
    """The rule in exact fractions: quotas, largest remainders, then fill up from the largest share."""
    quotas = [Fraction(units * weight, sum(weights)) for weight in weights]
    shares = [int(quota) for quota in quotas]
    neediest = sorted(range(len(weights)), key=lambda rank: (shares[rank] - quotas[rank], rank))
    for rank in neediest[: units - sum(shares)]:
        shares[rank] += 1
    while min(shares) < 1:
        shares[shares.index(max(shares))] -= 1
        shares[next(rank for rank, share in enumerate(shares) if share < 1)] += 1
    return tuple(shares)


@given(WEIGHTS, st.integers(0, 5000))
def test_split_follows_the_rule(weights, extra):
    units = len(weights) + extra
    assert split_units(units, weights) == literal_split(units, weights)


@given(WEIGHTS, st.integers(0, 5000), st.integers(2, 1000))
def test_scaling_the_weights_changes_nothing(weights, extra, factor):
    units = len(weights) + extra
    assert split_units(units, weights) == split_units(units, [weight * factor for weight in weights])


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any), st.integers(0, 300))
def test_zero_width_is_allowed_where_declared(weights, units):
    shares = split_units(units, weights, minimum=0)
    assert sum(shares) == units
    assert all(share == 0 for share, weight in zip(shares, weights, strict=True) if weight == 0)


@given(WEIGHTS, st.integers(0, 300), st.integers(1, 256))
def test_shards_tile_the_dimension_in_rank_order(weights, extra, unit):
    counts = split_units(len(weights) + extra, weights)
    table = UnitTable(unit, counts, unit * sum(counts))
    shards = [table.shard(rank) for rank in range(table.world)]
    assert shards[0].start == 0
    assert shards[-1].stop == table.total
    assert all(left.stop == right.start for left, right in pairwise(shards))
    assert all(shard.size % unit == 0 and shard.size >= unit and shard.real == shard.size for shard in shards)


def test_too_few_units_name_the_dimension_and_the_way_out():
    with pytest.raises(PartitionError, match="MLP: 3 units cannot serve 4 ranks; use at most 3"):
        split_units(3, (1, 1, 1, 1), what="MLP")


@pytest.mark.parametrize("weights", [(), (1, 0), (-1, 2), (0, 0)])
def test_bad_weights_are_refused(weights):
    with pytest.raises(PartitionError, match="weights"):
        split_units(8, weights)


def test_a_table_that_does_not_make_up_its_dimension_is_refused():
    with pytest.raises(PartitionError, match=r"units \[3, 1\] of 16 elements do not make up a dimension of 80"):
        UnitTable(16, (3, 1), 80)
    with pytest.raises(PartitionError):
        UnitTable(64, (1, 1), 64)
    with pytest.raises(IndexError):
        UnitTable(1, (3, 1), 4).shard(2)


def test_only_the_last_unit_of_a_padded_dimension_is_short():
    table = UnitTable(64, (2, 1), 150)
    assert table.padded == 192
    assert [table.shard(rank).real for rank in range(2)] == [128, 22]


@given(WEIGHTS)
def test_reduced_vectors_keep_proportions(weights):
    reduced = reduce_vector(weights)
    assert all(a * reduced[0] == b * weights[0] for a, b in zip(weights, reduced, strict=True))
    assert reduce_vector(reduced) == reduced


def test_quantisation_blocks_coarsen_the_unit_or_are_named():
    assert aligned_unit(17_408, 16, 128, "down_proj") == 128
    assert aligned_unit(1536, 16, 32, "down_proj") == 32
    with pytest.raises(PartitionError, match=r"down_proj: 1152 .* 256 = lcm\(unit 16, quantisation block 256\)"):
        aligned_unit(1152, 16, 256, "down_proj")
