"""Memory: items add up, pools are what brute force says, and the design's figures come out."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley_planner.memory import (
    MIB,
    PRIORS,
    Pools,
    RankMemory,
    Serving,
    bytes_for,
    pools_of,
    replica_memory,
    window_cap,
)
from motley_planner.model_facts import facts_from_hf_config
from motley_planner.partition import FamilyWeights, split_model

QWEN3_8B = facts_from_hf_config(
    {
        "model_type": "qwen3",
        "hidden_size": 4096,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 12_288,
        "vocab_size": 151_936,
        "max_position_embeddings": 40_960,
        "tie_word_embeddings": False,
    }
)
GEMMA = facts_from_hf_config(
    {
        "model_type": "gemma3_text",
        "hidden_size": 640,
        "num_hidden_layers": 18,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "intermediate_size": 2048,
        "vocab_size": 262_144,
        "max_position_embeddings": 32_768,
        "sliding_window": 512,
    }
)
ALL_SLIDING = replace(GEMMA, layer_types=("sliding",) * 18)
GIB = 1 << 30


def rank_memory(free, full_token, window_token):
    """A rank with ``free`` bytes for its pools and nothing else."""
    names = [name for name in RankMemory.__dataclass_fields__ if name not in ("budget", "full_token", "window_token")]
    return RankMemory(budget=free, full_token=full_token, window_token=window_token, **dict.fromkeys(names, 0))


def test_window_cap_of_the_design():
    assert window_cap(1024, 4, 2048, 1, eviction_interval=128, draft_tokens=1) == 6665


def test_weights_of_all_ranks_add_up_to_the_model():
    partition = split_model(QWEN3_8B, FamilyWeights.of((2, 1)))
    memory = replica_memory(QWEN3_8B, partition, Serving(weight_size=2), [40 * GIB, 20 * GIB], "cuda")
    extra = memory.ranks[1].replicated
    assert sum(rank.weights for rank in memory.ranks) - extra == 2 * QWEN3_8B.params
    assert all(sum(rank.items().values()) == rank.fixed == rank.budget - rank.free for rank in memory.ranks)


def test_kv_bytes_follow_the_kv_heads_a_rank_caches():
    partition = split_model(QWEN3_8B, FamilyWeights.of((2, 1)))
    memory = replica_memory(QWEN3_8B, partition, Serving(), [40 * GIB, 20 * GIB], "cuda")
    assert [rank.full_token for rank in memory.ranks] == [5 * 18 * 1024, 3 * 18 * 1024]


def test_shared_kv_heads_are_paid_by_every_rank():
    partition = split_model(GEMMA, FamilyWeights.of((1, 1)))
    both = replica_memory(GEMMA, partition, Serving(), [GIB, GIB], "cpu")
    alone = replica_memory(GEMMA, split_model(GEMMA, FamilyWeights.of((1,))), Serving(), [GIB], "cpu")
    assert {rank.full_token for rank in both.ranks} == {alone.ranks[0].full_token} == {3 * 1024}
    projections = GEMMA.weights.attn_kv.bytes(2)
    assert sum(rank.attention for rank in both.ranks) == alone.ranks[0].attention + projections


def test_stored_weights_are_charged_as_stored():
    quantised = replace(
        QWEN3_8B, weights=replace(QWEN3_8B.weights, mlp=replace(QWEN3_8B.weights.mlp, stored_bytes=768))
    )
    partition = split_model(quantised, FamilyWeights.of((3, 1)))
    memory = replica_memory(quantised, partition, Serving(weight_size=None), [GIB, GIB], "cuda")
    assert [rank.mlp for rank in memory.ranks] == [576, 192]


def brute_force_pools(facts, serving, rank):
    """The largest pool whose cost fits, counted page by page."""
    best = 0
    while bytes_for(facts, serving, rank, (best + 1) * serving.page_size) <= rank.budget:
        best += 1
    return best * serving.page_size


@given(
    st.sampled_from([QWEN3_8B, GEMMA, ALL_SLIDING]),
    st.integers(0, 3_000_000),
    st.sampled_from([1, 16]),
    st.integers(1, 4),
    st.integers(1, 300),
)
def test_pools_equal_brute_force(facts, free, page, running, chunk):
    serving = Serving(page_size=page, max_running=running, chunk=chunk, overlap=False)
    full, window = (0, 500) if facts is ALL_SLIDING else (700, 300 if facts is GEMMA else 0)
    rank = rank_memory(free, full, window)
    pools = pools_of(facts, serving, rank)
    assert pools.full == brute_force_pools(facts, serving, rank)
    assert pools.window <= pools.full
    if facts is ALL_SLIDING:
        assert pools.window == pools.full


def test_beyond_the_windows_need_everything_goes_to_full_attention():
    serving = Serving(page_size=16, max_running=1, chunk=64, overlap=False)
    small = pools_of(GEMMA, serving, rank_memory(400_000, 700, 300))
    large = pools_of(GEMMA, serving, rank_memory(4_000_000, 700, 300))
    assert small.window == small.full
    assert large.window < large.full
    assert large.window >= window_cap(512, 1, 64, 16, eviction_interval=16)


def test_the_poorest_rank_binds_and_its_largest_item_is_named():
    partition = split_model(QWEN3_8B, FamilyWeights.of((1, 1)))
    memory = replica_memory(QWEN3_8B, partition, Serving(), [40 * GIB, 14 * GIB], "cuda")
    assert memory.binding_rank == 1
    assert memory.tokens == memory.alone[1].full < memory.alone[0].full
    assert memory.binding_term == "mlp"


def test_a_rank_without_room_for_its_weights_has_no_pool():
    partition = split_model(QWEN3_8B, FamilyWeights.of((1, 1)))
    memory = replica_memory(QWEN3_8B, partition, Serving(), [40 * GIB, 4 * GIB], "cuda")
    assert memory.pools == Pools(0, 0)
    assert (memory.binding_rank, memory.ranks[1].free < 0) == (1, True)


def test_a_lone_rank_pays_for_no_communication():
    partition = split_model(GEMMA, FamilyWeights.of((1,)))
    memory = replica_memory(GEMMA, partition, Serving(), [GIB], "cuda")
    assert memory.ranks[0].comm == 0
    assert memory.ranks[0].context == PRIORS["cuda"].context == 512 * MIB
    with pytest.raises(ValueError, match="2 budgets for 1 ranks"):
        replica_memory(GEMMA, partition, Serving(), [GIB, GIB], "cuda")


def test_recurrent_states_are_held_for_every_running_request():
    hybrid = facts_from_hf_config(
        {
            "model_type": "qwen3_5_text",
            "hidden_size": 512,
            "num_hidden_layers": 64,
            "num_attention_heads": 24,
            "num_key_value_heads": 4,
            "intermediate_size": 1024,
            "vocab_size": 1024,
            "max_position_embeddings": 4096,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 48,
        }
    )
    partition = split_model(hybrid, FamilyWeights.of((3725, 2264, 2259)))
    serving = Serving(max_running=64)
    memory = replica_memory(hybrid, partition, serving, [40 * GIB] * 3, "cuda")
    assert sum(rank.state for rank in memory.ranks) == 64 * 74.8125 * MIB
    assert round(memory.ranks[0].state / 64 / MIB, 2) == 32.73
