from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.ranks import partition_of

from motley_engine.cache.pools import KVPools, page_bytes
from motley_engine.config.model import ModelConfig, RopeParams
from motley_engine.executor.step import Geometry
from motley_planner.model_facts import ModelFacts

FACTS = ModelFacts(
    architecture="Gemma3ForCausalLM",
    model_type="gemma3_text",
    num_layers=3,
    hidden_size=32,
    q_heads=6,
    kv_heads=3,
    head_dim=16,
    intermediate_size=64,
    vocab_size=128,
    max_position=64,
    tied_embeddings=True,
    layer_types=("sliding", "full", "sliding"),
    sliding_window=8,
)
CONFIG = ModelConfig(
    architecture="Gemma3ForCausalLM",
    facts=FACTS,
    vocab_size=128,
    hidden_size=32,
    intermediate_size=64,
    num_layers=3,
    num_q_heads=6,
    num_kv_heads=3,
    head_dim=16,
    norm_eps=1e-6,
    activation="gelu_tanh",
    max_position=64,
    layer_types=("sliding", "full", "sliding"),
    sliding_window=8,
    rope={"full": RopeParams((1.0,)), "sliding": RopeParams((1.0,))},
    tied_embeddings=True,
)
GEOMETRY = Geometry(page_size=4, full_pages=11, window_pages=5, window=8, max_running=2, max_context=32, vocab_size=128)


@pytest.mark.parametrize(("rank", "heads"), [(0, 2), (1, 1)])
def test_pools_have_the_pages_of_their_layer_type_and_the_heads_of_the_rank(rank, heads):
    partition = partition_of(CONFIG, (2, 1))
    pools = KVPools.build(GEOMETRY, CONFIG, partition, rank, torch.bfloat16, torch.device("cpu"))
    assert [tuple(k.shape) for k, _ in pools.layers] == [(5, 4, heads, 16), (11, 4, heads, 16), (5, 4, heads, 16)]
    assert all(k.dtype == v.dtype == torch.bfloat16 and k.data_ptr() != v.data_ptr() for k, v in pools.layers)
    costs = page_bytes(CONFIG, partition, rank, 4, torch.bfloat16)
    assert pools.nbytes == 11 * costs.full + 5 * costs.window


def test_zero_forgets_everything_in_place():
    pools = KVPools.build(GEOMETRY, CONFIG, partition_of(CONFIG, (1,)), 0, torch.float32, torch.device("cpu"))
    before = [pool.data_ptr() for pair in pools.layers for pool in pair]
    for pair in pools.layers:
        for pool in pair:
            assert not pool.any()
            pool.fill_(float("nan"))
    pools.zero()
    assert not any(pool.any() for pair in pools.layers for pool in pair)
    assert [pool.data_ptr() for pair in pools.layers for pool in pair] == before


@pytest.mark.parametrize(("field", "kind"), [("full_pages", "full"), ("window_pages", "sliding")])
def test_a_pool_without_room_is_refused(field, kind):
    geometry = replace(GEOMETRY, **{field: 1})
    with pytest.raises(ValueError, match=f"{kind} layers: 1 pages"):
        KVPools.build(geometry, CONFIG, partition_of(CONFIG, (1,)), 0, torch.float32, torch.device("cpu"))
