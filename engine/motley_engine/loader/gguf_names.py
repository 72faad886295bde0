"""Hugging Face tensor names, the GGUF names they are stored under, and what llama.cpp's converter did to the values."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOP = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
}
_PRE_NORMS = {"post_attention_layernorm": "ffn_norm"}
_SANDWICH_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_STORED = re.compile(r"^(?:blk\.(?P<layer>\d+)\.)?(?P<part>[a-z_]+)\.(?P<kind>weight|bias)$")


@dataclass(frozen=True, slots=True)
class Conventions:
    """How one GGUF architecture departs from Hugging Face.

    ``rotated``: rows of q and k are stored with the halves of each head interleaved. ``norm_offset`` was added to
    norms.
    """

    norms: str
    rotated: bool = False
    norm_offset: float = 0.0

    def hf_name(self, stored: str) -> str | None:
        """The Hugging Face name of a stored tensor; None if it is no weight of the text model."""
        match = _STORED.match(stored)
        if match is None:
            return None
        if match["layer"] is None:
            base = _inverse(_TOP).get(match["part"])
            return None if base is None else f"{base}.{match['kind']}"
        norms = _SANDWICH_NORMS if self.norms == "sandwich" else _PRE_NORMS
        base = _inverse(_LAYER | norms).get(match["part"])
        return None if base is None else f"model.layers.{match['layer']}.{base}.{match['kind']}"


def _inverse(table: dict[str, str]) -> dict[str, str]:
    return {stored: name for name, stored in table.items()}


CONVENTIONS: dict[str, Conventions] = {
    "llama": Conventions("pre", rotated=True),
    "qwen2": Conventions("pre"),
    "qwen3": Conventions("pre"),
    "gemma3": Conventions("sandwich", norm_offset=1.0),
}
"""By GGUF ``general.architecture``."""
