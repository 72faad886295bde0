"""Layers on several ranks against the same layer undivided, and the refusal of shards that do not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.ranks import DictReader, partition_of

from motley_engine.comm.collectives import Alone, Collectives
from motley_engine.comm.threads import run_ranks
from motley_engine.config.architectures import SERVED
from motley_engine.config.model import ModelConfig, RopeParams
from motley_engine.layers.build import Build, ShardMismatchError
from motley_engine.layers.mlp import GatedMLP
from motley_engine.layers.vocab import Embedding, LMHead, VocabRows
from motley_engine.loader.load import load_weights
from motley_engine.models import ARCHITECTURES, build_model
from motley_planner.model_facts import ModelFacts
from motley_planner.partition import ModelPartition

CPU = torch.device("cpu")
SPLITS = [(1,), (2, 1), (1, 3), (2, 1, 1)]


def make_config(**changes) -> ModelConfig:
    facts = ModelFacts(
        architecture="LlamaForCausalLM",
        model_type="llama",
        num_layers=2,
        hidden_size=24,
        q_heads=8,
        kv_heads=4,
        head_dim=6,
        intermediate_size=96,
        vocab_size=300,
        max_position=64,
        tied_embeddings=False,
        layer_types=("full", "full"),
    )
    config = ModelConfig(
        architecture="LlamaForCausalLM",
        facts=facts,
        vocab_size=300,
        hidden_size=24,
        intermediate_size=96,
        num_layers=2,
        num_q_heads=8,
        num_kv_heads=4,
        head_dim=6,
        norm_eps=1e-5,
        activation="silu",
        max_position=64,
        layer_types=("full", "full"),
        sliding_window=0,
        rope={"full": RopeParams((1.0, 0.1, 0.01))},
        tied_embeddings=False,
    )
    return replace(config, **changes)


def build(config: ModelConfig, partition: ModelPartition, comm: Collectives, dtype=torch.float32) -> Build:
    return Build(config, partition, comm.rank, comm, dtype, CPU, "torch")


def random_state(config: ModelConfig) -> dict[str, torch.Tensor]:
    """Whole tensors of every name that the undivided model lists."""
    whole = build_model(config, partition_of(config, (1,)), 0, Alone(), torch.float32, CPU, "torch")
    sizes = {piece.name: piece.into.shape for piece in whole.pieces()}
    return {name: torch.randn(shape) for name, shape in sizes.items()}


@pytest.mark.parametrize("base", SPLITS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_mlp_adds_its_bias_once(base, bias, activation):
    config = make_config(mlp_bias=bias, activation=activation)
    state = random_state(config)
    x = torch.randn(5, 24)

    def work(comm: Collectives) -> torch.Tensor:
        mlp = GatedMLP(build(config, partition_of(config, base), comm), "model.layers.1.mlp", bias=bias)
        load_weights(mlp.pieces(), DictReader(state))
        return mlp(x)

    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        name = f"model.layers.1.mlp.{name}"
        return x @ state[f"{name}.weight"].T + (state[f"{name}.bias"] if bias else 0.0)

    gate = linear("gate_proj", x)
    gate = (
        torch.nn.functional.silu(gate) if activation == "silu" else torch.nn.functional.gelu(gate, approximate="tanh")
    )
    expected = linear("down_proj", gate * linear("up_proj", x))
    for y in run_ranks(len(base), work):
        torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("base", SPLITS)
@pytest.mark.parametrize("tied", [False, True])
def test_vocabulary_shards_are_gathered_without_padding(base, tied):
    config = make_config(tied_embeddings=tied, logits_softcap=3.0)
    state = random_state(config)
    tokens, hidden = torch.tensor([0, 63, 64, 191, 192, 299]), torch.randn(3, 24)

    def work(comm: Collectives) -> tuple[torch.Tensor, torch.Tensor | None]:
        site = build(config, partition_of(config, base), comm)
        rows = VocabRows(site, "model.embed_tokens")
        head = rows if tied else VocabRows(site, "lm_head")
        for part in {rows, head}:
            load_weights(part.pieces(), DictReader(state))
        return Embedding(site, rows)(tokens), LMHead(site, head)(hidden)

    table = state["model.embed_tokens.weight"]
    results = run_ranks(len(base), work)
    for embedded, _ in results:
        assert torch.equal(embedded, table[tokens])
    expected = 3.0 * torch.tanh(hidden @ (table if tied else state["lm_head.weight"]).T / 3.0)
    logits = results[0][1]
    assert logits is not None
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    assert [logits for _, logits in results[1:]] == [None] * (len(base) - 1)


def test_embedding_scale_is_rounded_to_the_type_of_the_model():
    """sqrt(3072) = 55.4256 is 55.5 in bfloat16; checkpoints were trained with that."""
    config = make_config(embedding_scale=3072**0.5)
    site = build(config, partition_of(config, (1,)), Alone(), torch.bfloat16)
    rows = VocabRows(site, "model.embed_tokens")
    rows.weight.fill_(1.0)
    assert Embedding(site, rows)(torch.tensor([7])).unique().item() == 55.5


@pytest.mark.parametrize("base", SPLITS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_ranks_together_load_every_element_once(base, architecture):
    """Only what each rank holds whole (norms, biases after a sum, shared K/V heads) is loaded more than once."""
    config = make_config(architecture=architecture, qkv_bias=True, o_bias=True, mlp_bias=True)
    partition = partition_of(config, base)
    state = random_state(config)
    counts = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    for pieces in run_ranks(len(base), lambda comm: list(_model(config, partition, comm).pieces())):
        for piece in pieces:
            part = counts[piece.name]
            part = part if piece.dim is None else part.narrow(piece.dim, piece.start, piece.stop - piece.start)
            assert piece.into.shape == part.shape
            part += 1
    for name, count in counts.items():
        whole = "norm" in name or name.endswith(("o_proj.bias", "down_proj.bias"))
        assert count.unique().tolist() == [len(base) if whole else 1], name


def test_padded_rows_are_zero():
    config = make_config()
    site = build(config, partition_of(config, (1,)), Alone())
    assert not VocabRows(site, "lm_head").weight[300:].any()


def _model(config: ModelConfig, partition: ModelPartition, comm: Collectives):
    return build_model(config, partition, comm.rank, comm, torch.float32, CPU, "torch")


class Third:
    rank, world = 2, 3


@pytest.mark.parametrize(
    ("changes", "base", "comm", "message"),
    [
        ({}, (1, 1), Alone(), "partition for 2 ranks in a group where it is rank 0 of 1"),
        ({}, (1, 1), Third(), "partition for 2 ranks in a group where it is rank 2 of 3"),
        ({"num_q_heads": 12}, (1,), Alone(), "query heads: the partition cuts 8, the model has 12"),
        ({"num_kv_heads": 2}, (1,), Alone(), "kv heads: the partition cuts 4, the model has 2"),
        ({"intermediate_size": 48}, (1,), Alone(), "MLP columns: the partition cuts 96, the model has 48"),
        ({"vocab_size": 320}, (1,), Alone(), "vocabulary rows: the partition cuts 300, the model has 320"),
    ],
)
def test_shards_that_do_not_fit_are_refused(changes, base, comm, message):
    partition = partition_of(make_config(), base)
    with pytest.raises(ShardMismatchError, match=message):
        _model(replace(make_config(), **changes), partition, comm)


def test_families_cut_for_different_groups_are_refused():
    config = make_config()
    mixed = replace(partition_of(config, (1,)), mlp=partition_of(config, (1, 1)).mlp)
    with pytest.raises(ShardMismatchError, match="mlp: shards for 2 ranks"):
        _model(config, mixed, Alone())


def test_every_architecture_that_the_resolver_serves_can_be_built():
    assert set(ARCHITECTURES) == set(SERVED)


def test_unknown_architecture_is_refused_with_the_known_ones():
    config = make_config(architecture="FalconForCausalLM")
    with pytest.raises(ValueError, match="FalconForCausalLM: not supported; known are Gemma3ForCausalLM, Llama"):
        _model(config, partition_of(config, (1,)), Alone())
