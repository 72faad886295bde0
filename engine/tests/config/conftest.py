"""Cards, tiny configs and packaged models for configuration tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from motley_engine.config.placement import ListCards
from motley_planner.inventory import Card

TINY: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": 1000,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

WriteModel = Callable[..., Path]


@pytest.fixture
def write_model(tmp_path: Path) -> WriteModel:
    """A directory with a config (the tiny one, changed as given), a tokenizer's name and no weights."""

    def write(**changes: Any) -> Path:
        config = {key: value for key, value in {**TINY, **changes}.items() if value is not None}
        (tmp_path / "config.json").write_text(json.dumps(config))
        (tmp_path / "tokenizer.json").write_text("{}")
        return tmp_path

    return write


def card(index: int, total: int = 24576, used: int = 0, capability: str = "8.9") -> Card:
    return Card(f"GPU-{index}abc", "RTX4090", total, used, cuda_index=index, compute_capability=capability)


def cards(*found: Card) -> ListCards:
    return lambda: found
