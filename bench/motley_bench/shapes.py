"""Model shapes for runs with random weights: the architecture and sizes of a public model, no checkpoint needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "max_position_embeddings": 40960,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
}

SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": _QWEN3
    | {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "tie_word_embeddings": True,
    },
    "qwen3-8b": _QWEN3
    | {
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "tie_word_embeddings": False,
    },
    "qwen3-32b": _QWEN3
    | {
        "hidden_size": 5120,
        "intermediate_size": 25600,
        "num_hidden_layers": 64,
        "num_attention_heads": 64,
        "tie_word_embeddings": False,
    },
}


def write_config(shape: str, folder: Path, layers: int | None = None) -> dict[str, Any]:
    """Write ``config.json`` of the shape, optionally with fewer layers, and return it. ValueError if unknown."""
    if shape not in SHAPES:
        raise ValueError(f"--shape {shape}: unknown; there are {', '.join(SHAPES)}")
    config = dict(SHAPES[shape])
    if layers is not None:
        config["num_hidden_layers"] = layers
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return config
