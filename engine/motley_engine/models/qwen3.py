"""Qwen3: Llama's block with a norm on every query and key head; the head size is free of the hidden size."""

from __future__ import annotations

from motley_engine.layers.attention import Attention
from motley_engine.layers.build import Build
from motley_engine.layers.mlp import GatedMLP
from motley_engine.layers.norm import RMSNorm
from motley_engine.models.decoder import Decoder, DecoderLayer


class Qwen3(Decoder):
    def make_layer(self, build: Build, index: int, name: str) -> DecoderLayer:
        config = build.config
        return DecoderLayer(
            attention_norm=RMSNorm(build, f"{name}.input_layernorm", config.hidden_size),
            attention=Attention(
                build, index, f"{name}.self_attn", qkv_bias=config.qkv_bias, o_bias=config.o_bias, qk_norm=True
            ),
            mlp_norm=RMSNorm(build, f"{name}.post_attention_layernorm", config.hidden_size),
            mlp=GatedMLP(build, f"{name}.mlp", bias=False),
        )
