"""Qwen2 and Qwen2.5: Llama's block with biases on q, k and v only."""

from __future__ import annotations

from motley_engine.layers.attention import Attention
from motley_engine.layers.build import Build
from motley_engine.layers.mlp import GatedMLP
from motley_engine.layers.norm import RMSNorm
from motley_engine.models.decoder import Decoder, DecoderLayer


class Qwen2(Decoder):
    def make_layer(self, build: Build, index: int, name: str) -> DecoderLayer:
        hidden = build.config.hidden_size
        return DecoderLayer(
            attention_norm=RMSNorm(build, f"{name}.input_layernorm", hidden),
            attention=Attention(build, index, f"{name}.self_attn", qkv_bias=True, o_bias=False, qk_norm=False),
            mlp_norm=RMSNorm(build, f"{name}.post_attention_layernorm", hidden),
            mlp=GatedMLP(build, f"{name}.mlp", bias=False),
        )
