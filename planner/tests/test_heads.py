"""Attention heads: design vectors, brute force for the boundary rule, and what ranks need to serve their queries."""

from itertools import combinations, pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from motley_planner.partition import PartitionError, head_grid, heads_of, split_heads, split_units


@st.composite
def cases(draw, max_ranks=10):
    """(q heads, kv heads, weights) in all regimes: more kv heads than ranks, as many, fewer."""
    kv, group = draw(st.integers(1, 8)), draw(st.integers(1, 16))
    ranks = draw(st.integers(1, max_ranks))
    return kv * group, kv, tuple(draw(st.lists(st.integers(1, 100), min_size=ranks, max_size=ranks)))


def split(q, kv, weights, **options):
    return split_heads(head_grid(q, kv, len(weights), **options), weights)


@pytest.mark.parametrize(
    ("q", "kv", "weights", "expected", "raw"),
    [
        (32, 2, (28, 19, 19), (16, 8, 8), (7, 5, 4)),
        (24, 2, (39, 13, 12), (12, 6, 6), (7, 3, 2)),
        (16, 2, (1, 1, 1), (8, 4, 4), (3, 3, 2)),
    ],
)
def test_design_vectors_of_the_boundary_rule(q, kv, weights, expected, raw):
    heads = split(q, kv, weights)
    assert heads.q.sizes == expected
    assert heads.raw == raw
    assert heads.aligned


def test_whole_kv_groups_while_there_are_enough():
    heads = split(32, 8, (2, 1))
    assert (heads.mode, heads.q.sizes, heads.kv) == ("split", (20, 12), ((0, 5), (5, 8)))
    assert not heads.aligned


def test_as_many_kv_heads_as_ranks_is_even_whatever_the_weights():
    heads = split(9, 3, (100, 1, 1))
    assert (heads.mode, heads.q.sizes) == ("split", (3, 3, 3))


def test_one_kv_head_is_shared_and_queries_split_freely():
    heads = split(4, 1, (3, 1))
    assert (heads.mode, heads.q.sizes, heads.kv) == ("replicated", (3, 1), ((0, 1), (0, 1)))


@given(cases())
def test_split_serves_every_query_head_once_without_straddling(case):
    q, kv, weights = case
    try:
        heads = split(q, kv, weights)
    except PartitionError:
        assume(False)
    group = q // kv
    assert sum(heads.q.sizes) == q
    assert min(heads.q.sizes) >= 1
    for rank in range(heads.world):
        queries, keys = heads.q_shard(rank), heads.kv_shard(rank)
        needed = {head // group for head in range(queries.start, queries.stop)}
        assert needed == set(range(keys.start, keys.stop))
        if heads.mode == "replicated":
            assert len(needed) == 1


@given(cases(), st.integers(2, 50))
def test_scaling_the_weights_changes_nothing(case, factor):
    q, kv, weights = case
    try:
        heads = split(q, kv, weights)
    except PartitionError:
        assume(False)
    assert heads == split(q, kv, tuple(weight * factor for weight in weights))


@given(cases())
def test_only_what_cannot_be_aligned_is_refused(case):
    q, kv, weights = case
    units = q // kv
    if kv >= len(weights):
        split(q, kv, weights)
    elif units < len(weights):
        with pytest.raises(PartitionError, match="GQA group size"):
            split(q, kv, weights)
    elif units % kv == 0:
        split(q, kv, weights)
    else:
        straddles = head_grid(q, kv, len(weights)).straddles(split_units(units, weights))
        if straddles:
            with pytest.raises(PartitionError, match="cannot be aligned"):
                split(q, kv, weights)
        else:
            split(q, kv, weights)


def brute_force_alignment(units, kv, weights):
    """Every cut into runs, ordered as the design orders them."""
    per_head, world = units // kv, len(weights)
    cuts = []
    for borders in combinations(range(1, world), kv - 1):
        edges = (0, *borders, world)
        runs = [weights[low:high] for low, high in pairwise(edges)]
        if max(len(run) for run in runs) <= per_head:
            sums = [sum(run) for run in runs]
            cuts.append((max(sums), sorted(sums, reverse=True), [len(run) for run in runs], runs))
    runs = min(cuts, key=lambda cut: cut[:3])[3]
    return tuple(share for run in runs for share in split_units(per_head, run))


@st.composite
def alignable(draw):
    """Fewer kv heads than ranks, and as many units per kv head as alignment needs."""
    kv = draw(st.integers(2, 4))
    units = kv * draw(st.integers(2, 6))
    ranks = draw(st.integers(kv + 1, min(units, 9)))
    return units * kv, kv, tuple(draw(st.lists(st.integers(1, 100), min_size=ranks, max_size=ranks)))


@given(alignable())
def test_alignment_equals_brute_force(case):
    q, kv, weights = case
    units = q // kv
    grid = head_grid(q, kv, len(weights))
    raw = split_units(units, weights)
    heads = split_heads(grid, weights)
    expected = brute_force_alignment(units, kv, weights) if grid.straddles(raw) else raw
    assert heads.q.counts == expected
    assert heads.raw == raw


def test_alignment_of_many_ranks_is_quick():
    heads = split(64 * 8, 8, tuple(range(1, 65)))
    assert heads.q.world == 64


def test_token_split_lets_queries_straddle_and_projects_all_kv_heads():
    assert split(6, 2, (1, 1, 1), token_split=True).kv == ((0, 2),) * 3
    with pytest.raises(PartitionError, match="use 2 ranks or fewer"):
        split(6, 2, (1, 1, 1))


def test_blocks_along_o_proj_coarsen_the_heads():
    grid = head_grid(32, 8, 2, head_dim=64, block=256)
    assert grid.unit == 4
    assert head_grid(32, 32, 2, head_dim=64, block=256).unit == 4
    with pytest.raises(PartitionError, match="o_proj input of 576 elements"):
        head_grid(9, 9, 2, head_dim=64, block=256)
    with pytest.raises(PartitionError, match="quantisation block 256 leaves too few"):
        head_grid(8, 8, 4, head_dim=64, block=256)


def test_plan_vectors_are_checked_against_the_grid():
    grid = head_grid(32, 2, 3)
    assert heads_of(grid, (8, 4, 4)).q.sizes == (16, 8, 8)
    with pytest.raises(PartitionError, match=r"units \[8, 4, 3\] do not sum to 16 over 3 ranks"):
        heads_of(grid, (8, 4, 3))
    with pytest.raises(PartitionError, match="border between kv heads"):
        heads_of(grid, (7, 5, 4))
    with pytest.raises(PartitionError, match="no multiple of 3 kv heads"):
        head_grid(8, 3, 2)
