"""The tensors that a checkpoint of a served architecture holds, under Hugging Face names."""

from __future__ import annotations

from collections.abc import Iterator

from motley_engine.config.model import ModelConfig

Shape = tuple[int, ...]


def tensor_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Name -> shape of the whole tensor, for every weight of ``config``."""
    shapes: dict[str, Shape] = {"model.embed_tokens.weight": (config.vocab_size, config.hidden_size)}
    for index in range(config.num_layers):
        shapes.update((f"model.layers.{index}.{name}", shape) for name, shape in _layer(config))
    shapes["model.norm.weight"] = (config.hidden_size,)
    if not config.tied_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, config.hidden_size)
    return shapes


def _layer(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    hidden, columns = config.hidden_size, config.intermediate_size
    q, kv = config.num_q_heads * config.head_dim, config.num_kv_heads * config.head_dim
    yield from _linear("self_attn.q_proj", q, hidden, config.qkv_bias)
    yield from _linear("self_attn.k_proj", kv, hidden, config.qkv_bias)
    yield from _linear("self_attn.v_proj", kv, hidden, config.qkv_bias)
    yield from _linear("self_attn.o_proj", hidden, q, config.o_bias)
    yield from _linear("mlp.gate_proj", columns, hidden, config.mlp_bias)
    yield from _linear("mlp.up_proj", columns, hidden, config.mlp_bias)
    yield from _linear("mlp.down_proj", hidden, columns, config.mlp_bias)
    norms = ["input_layernorm", "post_attention_layernorm"]
    if config.sandwich_norms:
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    yield from ((f"{norm}.weight", (hidden,)) for norm in norms)
    if config.qk_norm:
        yield "self_attn.q_norm.weight", (config.head_dim,)
        yield "self_attn.k_norm.weight", (config.head_dim,)


def _linear(name: str, rows: int, columns: int, bias: bool) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (rows, columns)
    if bias:
        yield f"{name}.bias", (rows,)
