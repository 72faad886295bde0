"""KV token ownership: the map from slots to owners and rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley_planner.partition import PartitionError, TokenOwnership, token_vector

VECTORS = st.lists(st.integers(1, 20), min_size=1, max_size=6).filter(lambda counts: sum(counts) <= 64).map(tuple)


@given(VECTORS, st.integers(0, 12))
def test_slots_map_one_to_one_onto_rows_below_the_pool_size(counts, stripes):
    owned = TokenOwnership(counts)
    capacity = stripes * owned.stripe
    rows = owned.rows(capacity)
    places = {(owned.owner(slot), owned.row(slot)) for slot in range(capacity + 1)}
    assert len(places) == capacity + 1
    assert all(0 <= row < rows[rank] for rank, row in places)


@given(VECTORS, st.integers(0, 5000))
def test_owner_and_row_read_literally(counts, slot):
    owned = TokenOwnership(counts)
    stripe = [rank for rank, count in enumerate(counts) for _ in range(count)]
    owner = stripe[slot % len(stripe)]
    before = sum(1 for other in range(slot) if stripe[other % len(stripe)] == owner)
    assert (owned.owner(slot), owned.row(slot)) == (owner, before)


@given(st.integers(1, 8), st.integers(0, 1000))
def test_all_ones_is_modulo(world, slot):
    owned = TokenOwnership((1,) * world)
    assert (owned.owner(slot), owned.row(slot)) == (slot % world, slot // world)


@given(VECTORS, st.data())
def test_capacity_is_the_most_stripes_every_rank_affords(counts, data):
    owned = TokenOwnership(counts)
    affordable = data.draw(st.lists(st.integers(0, 1000), min_size=len(counts), max_size=len(counts)))
    capacity = owned.capacity(affordable)
    assert capacity % owned.stripe == 0
    fits = [rows <= have + count for rows, have, count in zip(owned.rows(capacity), affordable, counts, strict=True)]
    beyond = owned.rows(capacity + owned.stripe)
    assert all(fits)
    assert any(rows > have + count for rows, have, count in zip(beyond, affordable, counts, strict=True))


def test_design_vector():
    owned = TokenOwnership((33, 13, 18))
    assert owned.stripe == 64
    assert 563_456 % owned.stripe == 0


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=16))
def test_token_vectors_fit_a_stripe(weights):
    vector = token_vector(weights)
    assert sum(vector) <= 64
    assert len(vector) == len(weights)
    TokenOwnership(vector)


def test_small_sums_keep_their_proportions():
    assert token_vector((16, 8, 8)) == (2, 1, 1)
    assert token_vector((33, 13, 18)) == (33, 13, 18)


@pytest.mark.parametrize("counts", [(), (0, 1), (60, 5)])
def test_bad_vectors_are_refused(counts):
    with pytest.raises(PartitionError, match="kv tokens"):
        TokenOwnership(counts)
