"""Whole models cut over ranks: every tensor comes back together, and mismatched vectors are named."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley_planner.model_facts import GdnFacts, ModelFacts, MoeFacts, QuantBlocks
from motley_planner.partition import (
    FamilyWeights,
    PartitionError,
    UnitTable,
    Vectors,
    conv_slices,
    partition_model,
    split_model,
)

MIB = 1 << 20


def dense(**changes):
    facts = ModelFacts(
        architecture="LlamaForCausalLM",
        model_type="llama",
        num_layers=2,
        hidden_size=64,
        q_heads=8,
        kv_heads=4,
        head_dim=8,
        intermediate_size=192,
        vocab_size=500,
        max_position=128,
        tied_embeddings=True,
        layer_types=("full", "full"),
    )
    return replace(facts, **changes)


GDN_27B = GdnFacts(layers=48, key_heads=16, value_heads=48, key_dim=128, value_dim=128, conv_kernel=4)
WEIGHTS = st.lists(st.integers(1, 60), min_size=1, max_size=4)


@given(WEIGHTS, WEIGHTS, st.data())
def test_partition_round_trips_through_a_plans_vectors(base, mlp, data):
    facts = dense(
        moe=MoeFacts(1, 8, 2, 96, 64) if data.draw(st.booleans()) else None,
        gdn=GdnFacts(1, 4, 8, 16, 16, 4) if data.draw(st.booleans()) else None,
    )
    mlp = (mlp * len(base))[: len(base)]
    partition = split_model(facts, FamilyWeights.of(base, mlp=mlp, expert=mlp))
    again = partition_model(facts, partition.vectors)
    assert again.vectors == partition.vectors
    assert again.mlp == partition.mlp
    assert again.heads.kv == partition.heads.kv
    assert again.experts == partition.experts


@given(st.integers(1, 4000), st.integers(1, 512), WEIGHTS)
def test_column_slices_reassemble_the_tensor(columns, rows, weights):
    facts = dense(intermediate_size=columns * 16)
    if columns < len(weights):
        with pytest.raises(PartitionError, match="MLP columns"):
            split_model(facts, FamilyWeights.of(weights))
        return
    table = split_model(facts, FamilyWeights.of(weights)).mlp
    tensor = np.arange(table.total)
    parts = [tensor[shard.start : shard.stop] for shard in map(table.shard, range(table.world))]
    assert np.array_equal(np.concatenate(parts), tensor)


@given(st.integers(1, 20_000), WEIGHTS)
def test_vocabulary_is_cut_in_padded_units_of_64_rows(rows, weights):
    facts = dense(vocab_size=rows)
    if -(-rows // 64) < len(weights):
        with pytest.raises(PartitionError, match="vocabulary"):
            split_model(facts, FamilyWeights.of((1,) * len(weights), vocab=weights))
        return
    table = split_model(facts, FamilyWeights.of((1,) * len(weights), vocab=weights)).vocab
    assert table.padded == -(-rows // 64) * 64
    assert all(size % 64 == 0 for size in table.sizes)
    assert sum(table.shard(rank).real for rank in range(table.world)) == rows


def test_the_vocabulary_never_inherits_the_base_vector():
    partition = split_model(dense(vocab_size=6400), FamilyWeights.of((3, 1)))
    assert partition.mlp.counts == (9, 3)
    assert partition.vocab.counts == (50, 50)


@pytest.mark.parametrize(("columns", "unit"), [(192, 16), (200, 8), (17_408, 16), (6, 2)])
def test_mlp_unit_is_what_16_elements_and_the_width_share(columns, unit):
    assert split_model(dense(intermediate_size=columns), FamilyWeights.of((1,))).mlp.unit == unit


def test_quantisation_blocks_coarsen_columns_or_are_named():
    facts = dense(intermediate_size=17_408, blocks=QuantBlocks(mlp=128))
    assert split_model(facts, FamilyWeights.of((16, 1, 1))).mlp.sizes == (15_488, 1024, 896)
    with pytest.raises(PartitionError, match=r"MLP columns \(down_proj input\): 200 .*quantisation block 128"):
        split_model(dense(intermediate_size=200, blocks=QuantBlocks(mlp=128)), FamilyWeights.of((1, 1)))


def test_shared_experts_follow_the_mlp_vector_and_experts_their_own():
    facts = dense(intermediate_size=0, moe=MoeFacts(2, 16, 4, expert_size=512, shared_size=256))
    partition = split_model(facts, FamilyWeights.of((1, 1), mlp=(3, 1), expert=(1, 3)))
    assert partition.mlp.sizes == (0, 0)
    assert partition.shared_experts is not None
    assert partition.experts is not None
    assert partition.shared_experts.sizes == (192, 64)
    assert partition.experts.sizes == (128, 384)
    assert partition.vectors.mlp == (12, 4)


def test_gdn_state_of_the_27b_model():
    assert GDN_27B.recurrent_bytes(2) == 72 * MIB
    assert GDN_27B.conv_bytes(2) == 2.8125 * MIB
    assert GDN_27B.state_bytes(2) == 74.8125 * MIB
    shares = [round(GDN_27B.state_bytes(2, heads) / MIB, 2) for heads in (7, 5, 4)]
    assert shares == [32.73, 23.38, 18.70]


def test_conv_channels_are_cut_per_sub_block():
    gdn = GdnFacts(layers=1, key_heads=4, value_heads=8, key_dim=2, value_dim=3, conv_kernel=4)
    table = UnitTable(1, (3, 1), 4)
    channels = np.concatenate([np.repeat(np.arange(4), 2), np.repeat(np.arange(4), 2), np.repeat(np.arange(4), 6)])
    seen = []
    for rank, owned in enumerate(({0, 1, 2}, {3})):
        for start, stop in conv_slices(gdn, table, rank):
            assert set(channels[start:stop]) == owned
            seen += range(start, stop)
    assert sorted(seen) == list(range(2 * 8 + 24))


def test_gdn_heads_follow_the_base_vector_and_blocks_along_the_values():
    partition = split_model(dense(gdn=GDN_27B), FamilyWeights.of((3725, 2264, 2259)))
    assert partition.gdn is not None
    assert partition.gdn.sizes == (7, 5, 4)
    coarse = split_model(dense(gdn=GDN_27B, blocks=QuantBlocks(gdn=768)), FamilyWeights.of((1, 1)))
    assert coarse.gdn is not None
    assert coarse.gdn.unit == 2
    with pytest.raises(PartitionError, match="16 key heads are no multiple of 5"):
        split_model(dense(gdn=GDN_27B, blocks=QuantBlocks(gdn=1920)), FamilyWeights.of((1, 1)))


def test_a_ba_projection_off_its_kernel_tile_is_refused():
    tiled = replace(GDN_27B, ba_tile=8)
    split_model(dense(gdn=tiled), FamilyWeights.of((3, 1)))
    with pytest.raises(PartitionError, match=r"7 key heads on rank 0 make the ba projection 42 wide"):
        split_model(dense(gdn=tiled), FamilyWeights.of((3725, 2264, 2259)))


def test_mismatched_plan_vectors_are_named():
    facts = dense()
    good = split_model(facts, FamilyWeights.of((2, 1))).vectors
    with pytest.raises(PartitionError, match=r"mlp vector \[8, 5\]: needs 2 positive entries that sum to 12 units"):
        partition_model(facts, replace(good, mlp=(8, 5)))
    with pytest.raises(PartitionError, match="vocab vector"):
        partition_model(facts, replace(good, vocab=(8, 1)))
    with pytest.raises(PartitionError, match=r"expert vector .* no such layers"):
        partition_model(facts, replace(good, expert=(1, 1)))
    with pytest.raises(PartitionError, match=r"gdn vector .* no such layers"):
        partition_model(facts, replace(good, gdn=(1, 1)))
    with pytest.raises(PartitionError, match="mlp vector"):
        partition_model(facts, Vectors(attn=good.attn, mlp=(), vocab=good.vocab))
    with pytest.raises(PartitionError, match="kv tokens"):
        partition_model(facts, replace(good, kv_tokens=(1, 1, 1)))
