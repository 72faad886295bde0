"""Resolved models against transformers: every architecture, every rope variant, GGUF metadata, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from config.conftest import TINY, WriteModel
from helpers.packaged import SMOLLM2, packaged

from motley_engine.config.architectures import generation_defaults, model_config
from motley_engine.config.errors import ConfigError
from motley_engine.config.model import ModelConfig
from motley_engine.config.rope import HF_LAYER_TYPES
from motley_engine.loader.shapes import tensor_shapes
from motley_planner.sources import resolve_model

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama-biases": {"attention_bias": True, "mlp_bias": True, "head_dim": 24, "eos_token_id": [2, 5]},
    "mistral": {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": None},
    "mistral-window": {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 128},
    "qwen2": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "head_dim": None},
    "qwen2-window": {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "head_dim": None,
        "sliding_window": 64,
        "use_sliding_window": True,
        "max_window_layers": 1,
    },
    "qwen3": {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "head_dim": 32,
        "tie_word_embeddings": True,
    },
    "gemma3": {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "num_hidden_layers": 8,
        "hidden_act": None,
        "rope_theta": None,
        "sliding_window": 96,
        "query_pre_attn_scalar": 24,
        "final_logit_softcapping": 30.0,
        "attn_logit_softcapping": 50.0,
    },
}


def resolved(write_model: WriteModel, **changes: Any) -> ModelConfig:
    return model_config(resolve_model(str(write_model(**changes))))


def built(directory: Path) -> Any:
    """transformers' own model of the config, without weights."""
    config = transformers.AutoConfig.from_pretrained(directory)
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


def rotary_of(directory: Path) -> Any:
    """transformers' rotary module, with its frequencies."""
    config = transformers.AutoConfig.from_pretrained(directory)
    return type(built(directory).model.rotary_emb)(config)


def assert_same_rope(found: ModelConfig, rotary: Any) -> None:
    for kind, params in found.rope.items():
        nested = hasattr(rotary, f"{HF_LAYER_TYPES[kind]}_inv_freq")
        prefix = f"{HF_LAYER_TYPES[kind]}_" if nested else ""
        assert params.inv_freq == tuple(getattr(rotary, f"{prefix}inv_freq").tolist())
        assert params.attention_factor == getattr(rotary, f"{prefix}attention_scaling")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_what_transformers_builds(family: str, write_model: WriteModel, tmp_path: Path) -> None:
    found = resolved(write_model, **FAMILIES[family])
    model = built(tmp_path)
    config = model.config
    weights = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if found.tied_embeddings:
        weights.pop("lm_head.weight")
    assert tensor_shapes(found) == weights
    layers = getattr(config, "layer_types", None)
    window = ["sliding_attention" if config.sliding_window else "full_attention"] * 2 if family[:7] == "mistral" else []
    expected = layers or window or ["full_attention"] * found.num_layers
    assert [HF_LAYER_TYPES[kind] for kind in found.layer_types] == list(expected)
    assert found.sliding_window == (config.sliding_window if "sliding" in found.layer_types else 0)
    attention = model.model.layers[0].self_attn
    assert found.query_scale == pytest.approx(attention.scaling, abs=0)
    assert found.norm_eps == config.rms_norm_eps
    assert found.eos_token_ids == ((2, 5) if family == "llama-biases" else (2,))
    assert found.unit_offset_norm == found.sandwich_norms == (family == "gemma3")
    assert found.embedding_scale == (8.0 if family == "gemma3" else 1.0)
    assert (found.attention_softcap, found.logits_softcap) == ((50.0, 30.0) if family == "gemma3" else (0.0, 0.0))
    assert found.activation == ("gelu_tanh" if family == "gemma3" else "silu")
    assert_same_rope(found, rotary_of(tmp_path))


ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
    "yarn-attention": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 1024,
        "attention_factor": 0.7,
        "beta_fast": 16,
        "beta_slow": 2,
    },
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1024,
    },
    "longrope": {
        "rope_type": "longrope",
        "factor": 4.0,
        "original_max_position_embeddings": 1024,
        "short_factor": [1.0 + i / 9 for i in range(8)],
        "long_factor": [2.0 + i for i in range(8)],
    },
    "old-name": {"type": "linear", "factor": 2.0},
}


@pytest.mark.parametrize("variant", ROPES)
def test_every_rope_variant_is_transformers(variant: str, write_model: WriteModel, tmp_path: Path) -> None:
    found = resolved(write_model, rope_scaling=ROPES[variant], rope_theta=50000.0)
    assert_same_rope(found, rotary_of(tmp_path))
    # longer sequences would switch to other frequencies
    assert found.max_position == (1024 if variant == "longrope" else 4096)


def test_gemma3_scales_only_its_global_layers(write_model: WriteModel, tmp_path: Path) -> None:
    scaled = {**FAMILIES["gemma3"], "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    found = resolved(write_model, **scaled)
    assert_same_rope(found, rotary_of(tmp_path))
    assert found.rope["sliding"].inv_freq[1] == pytest.approx(10000.0 ** (-2 / 16))
    assert found.rope["full"].inv_freq[1] == pytest.approx(1e6 ** (-2 / 16) / 8)


def test_gemma3_with_vision_is_served_as_text(write_model: WriteModel) -> None:
    text = {**TINY, **FAMILIES["gemma3"], "architectures": None}
    text = {key: value for key, value in text.items() if value is not None}
    outer = dict.fromkeys(TINY)
    found = resolved(
        write_model,
        **{**outer, "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": text},
    )
    assert (found.architecture, found.num_layers, found.eos_token_ids) == ("Gemma3ForCausalLM", 8, (2,))


def test_generation_config_replaces_end_tokens(write_model: WriteModel) -> None:
    directory = write_model()
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 8], "temperature": 0.6}))
    model = resolve_model(str(directory))
    assert model_config(model).eos_token_ids == (7, 8)
    assert generation_defaults(model)["temperature"] == 0.6


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"model_type": "gpt_bigcode"}, "model_type: 'gpt_bigcode' is not supported"),
        (
            {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
            "architecture MixtralForCausalLM is not served; served: LlamaForCausalLM",
        ),
        ({"hidden_act": "relu"}, "activation 'relu' is not served; served: silu, gelu_pytorch_tanh"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, r"is quantised \(awq\), .* GGUF file"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "transformers refuses it: .*Missing required keys"),
        ({"rope_scaling": {"rope_type": "spiral", "factor": 2.0}}, "rope_type 'spiral' is not served; served: default"),
    ],
)
def test_what_is_not_served_is_named(changes: dict[str, Any], fault: str, write_model: WriteModel) -> None:
    with pytest.raises(ConfigError, match=f"--model-path: .*{fault}"):
        resolved(write_model, **changes)


def test_smollm2_file_resolves_as_transformers_reads_it() -> None:
    model = packaged(SMOLLM2)
    found = model_config(model)
    config = transformers.AutoConfig.from_pretrained(model.path.parent, gguf_file=model.path.name)
    assert found.norm_eps == config.rms_norm_eps
    assert (found.head_dim, found.num_q_heads, found.num_kv_heads) == (64, 9, 3)
    assert found.eos_token_ids == (config.eos_token_id,)
    assert found.max_position == config.max_position_embeddings
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    assert_same_rope(found, LlamaRotaryEmbedding(config))


def write_gguf(path: Path, architecture: str, table: np.ndarray | None = None, **keys: Any) -> Path:
    """A tiny model's header; the tensors only have to be there."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(4096)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(16)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(50000.0)
    for key, value in keys.items():
        name = key.replace("__", ".")
        add = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}[type(value)]
        add(name if name.startswith("tokenizer") else f"{architecture}.{name}", value)
    shapes = {"token_embd": (96, 64), "output_norm": (64,), "blk.0.ffn_down": (64, 128)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", np.zeros(shape, np.float32))
    if table is not None:
        writer.add_tensor("rope_freqs.weight", table)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_gguf_turn_end_tokens_also_end_generation(tmp_path: Path) -> None:
    keys = {"tokenizer__ggml__eos_token_id": 1, "tokenizer__ggml__eot_token_id": 9, "tokenizer__ggml__bos_token_id": 3}
    found = model_config(resolve_model(str(write_gguf(tmp_path / "m.gguf", "llama", **keys))))
    assert (found.eos_token_ids, found.bos_token_id) == ((1, 9), 3)


def test_gguf_gemma3_has_local_and_global_frequencies(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", "gemma3", attention__sliding_window=32)
    found = model_config(resolve_model(str(path)))
    assert found.rope["sliding"].inv_freq[1] == pytest.approx(10000.0 ** (-2 / 16))
    assert found.unit_offset_norm
    assert found.activation == "gelu_tanh"


def test_gguf_rope_table_divides_frequencies(tmp_path: Path) -> None:
    """The table that llama.cpp writes for Llama 3.1 gives what transformers computes from the original config."""
    scaled = {"rope_theta": 50000.0, "rope_scaling": ROPES["llama3"]}
    config = transformers.LlamaConfig(hidden_size=64, num_attention_heads=4, max_position_embeddings=4096, **scaled)
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    plain = model_config(resolve_model(str(write_gguf(tmp_path / "plain.gguf", "llama"))))
    expected = LlamaRotaryEmbedding(config).inv_freq
    table = torch.tensor(plain.rope["full"].inv_freq) / expected
    path = write_gguf(tmp_path / "scaled.gguf", "llama", table=table.numpy())
    found = model_config(resolve_model(str(path))).rope["full"].inv_freq
    assert torch.allclose(torch.tensor(found), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_gguf_rope_scaling_is_honoured(kind: str, tmp_path: Path) -> None:
    keys = {"rope__scaling__type": kind, "rope__scaling__factor": 4.0}
    if kind == "yarn":
        keys["rope__scaling__original_context_length"] = 1024
    found = model_config(resolve_model(str(write_gguf(tmp_path / "m.gguf", "qwen3", **keys))))
    scaling = {"rope_type": kind, "rope_theta": 50000.0, "factor": 4.0}
    if kind == "yarn":
        scaling["original_max_position_embeddings"] = 1024
    config = transformers.Qwen3Config(
        hidden_size=64, num_attention_heads=4, head_dim=16, max_position_embeddings=4096, rope_parameters=scaling
    )
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    assert_same_rope(found, Qwen3RotaryEmbedding(config))


def test_gguf_faults_name_the_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--model-path: general.architecture: 'mamba' is not supported"):
        model_config(resolve_model(str(write_gguf(tmp_path / "a.gguf", "mamba"))))
    keys = {"rope__scaling__type": "longrope"}
    with pytest.raises(ConfigError, match=r"llama\.rope\.scaling\.type: 'longrope' is not served"):
        model_config(resolve_model(str(write_gguf(tmp_path / "b.gguf", "llama", **keys))))
