"""Every architecture against transformers in float32, at several splits, whole and chunked with decode steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
import transformers
from helpers.ranks import Checkpoint, Schedule, logits_of

SMALL = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "vocab_size": 217,
    "max_position_embeddings": 128,
    # wide enough that logits and attention are far from uniform
    "initializer_range": 0.25,
    "attn_implementation": "eager",
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0}


def rope(theta: float = 10000.0, **scaling: Any) -> dict[str, Any]:
    original = {} if scaling["rope_type"] in ("linear", "dynamic") else {"original_max_position_embeddings": 32}
    return {"rope_parameters": {"rope_theta": theta, **original, **scaling}}


# name: (architecture, changes to SMALL)
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"tie_word_embeddings": False}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True}),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-one-kv-head": ("Llama", {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 12}),
    "llama-two-kv-heads": ("Llama", {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 12}),
    "llama-wide-heads": ("Llama", {"head_dim": 20}),
    "llama-rope-llama3": ("Llama", rope(**LLAMA3)),
    "llama-rope-yarn": ("Llama", rope(**YARN)),
    "llama-rope-linear": ("Llama", rope(rope_type="linear", factor=2.0)),
    "llama-rope-dynamic": ("Llama", rope(rope_type="dynamic", factor=2.0)),
    "mistral": ("Mistral", {"sliding_window": None, "head_dim": 8}),
    "mistral-window": ("Mistral", {"sliding_window": 11, "head_dim": 8}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 20}),
    "qwen3-biases": ("Qwen3", {"head_dim": 8, "attention_bias": True}),
    "gemma3": ("Gemma3", {"head_dim": 20, "sliding_window": 10, "sliding_window_pattern": 2}),
    "gemma3-one-kv-head": (
        "Gemma3",
        {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16, "sliding_window": 7,
         "sliding_window_pattern": 3, "query_pre_attn_scalar": 40},
    ),
}  # fmt: skip
Split = tuple[tuple[int, ...], tuple[int, ...]]
# one rank; uneven both ways; an odd group, with MLP shares of its own
SPLITS: list[Split] = [((1,), ()), ((2, 1), ()), ((1, 2), ()), ((1, 1, 1), (1, 3, 1))]
LENGTHS = [57, 1, 23]


@dataclass(frozen=True)
class Oracle:
    """A tiny checkpoint on disk, some prompts, and what transformers makes of each."""

    checkpoint: Checkpoint
    sequences: list[torch.Tensor]
    logits: list[torch.Tensor]


def tiny(name: str) -> Any:
    """A Hugging Face model whose every tensor, biases and norms included, is random."""
    kind, changes = VARIANTS[name]
    prefix = {"Gemma3": "Gemma3Text"}.get(kind, kind)
    torch.manual_seed(1)
    config = getattr(transformers, f"{prefix}Config")(**{**SMALL, **changes})
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval().float()
    with torch.no_grad():
        for tensor_name, tensor in model.named_parameters():
            if tensor_name.endswith("bias") or "norm" in tensor_name:
                tensor.add_(0.3 * torch.randn_like(tensor))
    return model


@pytest.fixture(scope="module")
def oracle(tmp_path_factory) -> Callable[[str], Oracle]:
    @cache
    @torch.inference_mode()
    def make(name: str) -> Oracle:
        model = tiny(name)
        sequences = [torch.randint(0, SMALL["vocab_size"], (length,)) for length in LENGTHS]
        logits = [model(tokens[None]).logits[0] for tokens in sequences]
        # uniform logits would make any tolerance easy
        assert logits[0].std() > 0.5
        return Oracle(Checkpoint.save(model, tmp_path_factory.mktemp(name)), sequences, logits)

    return make


def ratio(split: Split) -> str:
    return ":".join(map(str, split[0]))


def chunked() -> Schedule:
    """Prefill chunks of 16, then decodes one by one; a mixed step whenever rows are at different stages."""
    return [{0: 16}, {0: 16, 1: 1}, {0: 10, 2: 16}, *({0: 1, 2: 1} for _ in range(7)), *({0: 1} for _ in range(8))]


def check(oracle: Oracle, split: Split, schedule: Schedule, **options: Any) -> None:
    actual = logits_of(oracle.checkpoint, split[0], oracle.sequences, schedule, mlp=split[1], **options)
    for one, other in zip(actual, oracle.logits, strict=True):
        torch.testing.assert_close(one, other[: len(one)], rtol=0, atol=1e-4)


@pytest.mark.parametrize("split", SPLITS, ids=ratio)
@pytest.mark.parametrize("name", VARIANTS)
def test_whole_prompts(name, split, oracle):
    check(oracle(name), split, [dict(enumerate(LENGTHS))])


@pytest.mark.parametrize("split", SPLITS, ids=ratio)
@pytest.mark.parametrize("name", VARIANTS)
def test_chunks_and_decodes(name, split, oracle):
    check(oracle(name), split, chunked())


# page sizes around the window: pages of one token, larger than the window, larger than the prompt
@pytest.mark.parametrize("page_size", [1, 16, 128])
@pytest.mark.parametrize("name", ["llama", "mistral-window", "gemma3"])
def test_page_sizes(name, page_size, oracle):
    check(oracle(name), ((2, 1), ()), chunked(), page_size=page_size)


@pytest.mark.parametrize("name", ["llama-biases", "gemma3-one-kv-head"])
def test_triton_kernels(name, oracle):
    # one rank: the interpreter is not made for threads
    schedule = [{0: 20, 1: 1, 2: 9}, {0: 5, 2: 1}, {0: 1, 2: 1}]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    check(oracle(name), SPLITS[0], schedule, backend="triton", device=device)
