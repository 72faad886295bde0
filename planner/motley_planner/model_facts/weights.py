"""Parameters per weight family, counted from a model's sizes."""

from __future__ import annotations

from motley_planner.model_facts.facts import GdnFacts, ModelFacts, ModelWeights, Weights
from motley_planner.model_facts.families import Family
from motley_planner.model_facts.quant import LinearStorage


def count_weights(facts: ModelFacts, family: Family, storage: LinearStorage) -> ModelWeights:
    """Weights of every family; linear layers are stored as ``storage`` says, the rest unquantised."""

    def linear(params: int) -> Weights:
        return Weights(params, storage.bytes(params))

    def plain(params: int) -> Weights:
        return Weights(params, params * facts.dtype_size)

    gdn, hidden = facts.gdn, facts.hidden_size
    attention_layers = facts.full_layers + facts.sliding_layers
    q_width, kv_width = facts.q_heads * facts.head_dim, facts.kv_heads * facts.head_dim
    q_outputs = q_width * (2 if family.output_gate else 1)
    embedding = plain(facts.vocab_size * hidden)
    expert_layers = facts.moe.layers if facts.moe else 0
    dense = linear((facts.num_layers - expert_layers) * 3 * hidden * facts.intermediate_size)
    dense_bias = plain((facts.num_layers - expert_layers) * 2 * facts.intermediate_size * facts.mlp_bias)
    return ModelWeights(
        attn_q=linear(attention_layers * (q_outputs + q_width) * hidden)
        + plain(attention_layers * q_outputs * facts.qkv_bias),
        attn_kv=linear(attention_layers * 2 * kv_width * hidden)
        + plain(attention_layers * 2 * kv_width * facts.qkv_bias),
        mlp=dense + dense_bias + linear(_shared_params(facts)),
        expert=linear(_expert_params(facts)),
        gdn=linear(gdn.layers * _gdn_linear(gdn, hidden)) + plain(gdn.layers * _gdn_plain(gdn)) if gdn else Weights(),
        embedding=embedding,
        lm_head=Weights() if facts.tied_embeddings else embedding,
        replicated=plain(_replicated(facts, family, attention_layers)),
    )


def _expert_params(facts: ModelFacts) -> int:
    moe = facts.moe
    return moe.layers * moe.experts * 3 * facts.hidden_size * moe.expert_size if moe else 0


def _shared_params(facts: ModelFacts) -> int:
    moe = facts.moe
    return moe.layers * 3 * facts.hidden_size * moe.shared_size if moe else 0


def _gdn_linear(gdn: GdnFacts, hidden: int) -> int:
    """qkvz, ba and output projection of one layer."""
    keys, values = gdn.key_heads * gdn.key_dim, gdn.value_heads * gdn.value_dim
    return hidden * (2 * keys + 2 * values + 2 * gdn.value_heads + values)


def _gdn_plain(gdn: GdnFacts) -> int:
    """Convolution, A and dt bias of one layer."""
    channels = 2 * gdn.key_heads * gdn.key_dim + gdn.value_heads * gdn.value_dim
    return channels * gdn.conv_kernel + 2 * gdn.value_heads


def _replicated(facts: ModelFacts, family: Family, attention_layers: int) -> int:
    """Norms, routers, shared-expert gates and the biases added once (o, down)."""
    hidden, moe, gdn = facts.hidden_size, facts.moe, facts.gdn
    norms = facts.num_layers * family.norms_per_layer * hidden + hidden
    head_norms = attention_layers * 2 * facts.head_dim * facts.qk_norm
    gdn_norms = gdn.layers * gdn.value_dim if gdn else 0
    router = moe.layers * hidden * (moe.experts + (1 if moe.shared_size else 0)) if moe else 0
    dense_layers = facts.num_layers - (moe.layers if moe else 0)
    biases = attention_layers * hidden * facts.o_bias + dense_layers * hidden * facts.mlp_bias
    return norms + head_norms + gdn_norms + router + biases
