"""Gemma 3 text models: norms before and after each block, q/k norms, local layers with their own rope and window.

Scales of embedding and queries, the unit offset of the norms and the layer types come with the config.
"""

from __future__ import annotations

from motley_engine.layers.attention import Attention
from motley_engine.layers.build import Build
from motley_engine.layers.mlp import GatedMLP
from motley_engine.layers.norm import RMSNorm
from motley_engine.models.decoder import Decoder, DecoderLayer


class Gemma3(Decoder):
    def make_layer(self, build: Build, index: int, name: str) -> DecoderLayer:
        config = build.config
        hidden = config.hidden_size
        return DecoderLayer(
            attention_norm=RMSNorm(build, f"{name}.input_layernorm", hidden),
            attention=Attention(
                build, index, f"{name}.self_attn", qkv_bias=config.qkv_bias, o_bias=config.o_bias, qk_norm=True
            ),
            after_attention=RMSNorm(build, f"{name}.post_attention_layernorm", hidden),
            mlp_norm=RMSNorm(build, f"{name}.pre_feedforward_layernorm", hidden),
            mlp=GatedMLP(build, f"{name}.mlp", bias=False),
            after_mlp=RMSNorm(build, f"{name}.post_feedforward_layernorm", hidden),
        )
