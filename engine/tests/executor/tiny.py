"""Tiny random models behind the real configuration, and steps written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from motley_engine.config.resolve import Resolved, resolve
from motley_engine.config.schema import EngineConfig
from motley_engine.executor.step import PageUpdate, SamplingPlan, StepKind, StepPlan

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 8,
    "hidden_act": "silu",
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "vocab_size": 300,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GEMMA: dict[str, Any] = {
    **LLAMA,
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "num_hidden_layers": 4,
    "num_key_value_heads": 1,
    "hidden_activation": "gelu_pytorch_tanh",
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
    "sliding_window": 8,
    "query_pre_attn_scalar": 8,
    "rope_local_base_freq": 10000.0,
}


def settle(folder: Path, config: dict[str, Any], ratio: str = "", **sections: dict[str, Any]) -> Resolved:
    """The resolved configuration of a model with random weights of ``config``'s shapes, cut by ``ratio``."""
    (folder / "config.json").write_text(json.dumps(config))
    settings: dict[str, dict[str, Any]] = {
        "model": {"model_path": str(folder), "load_format": "dummy", "skip_tokenizer_init": True, "dtype": "float32"},
        "parallel": {"device": "cpu", "rank_tp_ratio": ratio, "rank_gpu_memory_mib": (256,)},
        "memory": {"page_size": 4, "max_total_tokens": 400},
        "scheduler": {"max_running_requests": 6, "chunked_prefill_size": 64},
    }
    for section, values in sections.items():
        settings.setdefault(section, {}).update(values)
    return resolve(EngineConfig.model_validate(settings))


def ints(values: Any) -> np.ndarray:
    return np.asarray(values, np.int32)


class Sequences:
    """Rows with pages of their own: row r's page for column c is ``1 + r * columns + c`` in both pools."""

    def __init__(self, page_size: int, columns: int) -> None:
        self.page_size = page_size
        self.columns = columns
        self.lengths: dict[int, int] = {}
        self.seq = 0

    def step(self, parts: dict[int, list[int]], sample: list[int] | None = None, score: list[int] = ()) -> StepPlan:
        """Append ``parts[row]`` to each row; ``sample`` lists the rows to sample, default all."""
        updates: list[tuple[int, int, int]] = []
        for row, tokens in parts.items():
            before = self.lengths.get(row, 0)
            after = before + len(tokens)
            first, last = -(-before // self.page_size), -(-after // self.page_size)
            updates += [(row, column, 1 + row * self.columns + column) for column in range(first, last)]
            self.lengths[row] = after
        rows = list(parts)
        self.seq += 1
        columns = ints(updates).reshape(-1, 3).T
        decode = all(len(tokens) == 1 for tokens in parts.values())
        return StepPlan(
            seq=self.seq,
            kind=StepKind.DECODE if decode else StepKind.EXTEND,
            rows=ints(rows),
            q_lens=ints([len(tokens) for tokens in parts.values()]),
            kv_lens=ints([self.lengths[row] for row in rows]),
            tokens=ints([token for tokens in parts.values() for token in tokens]),
            sample=ints([rows.index(row) for row in (rows if sample is None else sample)]),
            score=ints(score),
            full=PageUpdate(*columns),
            window=PageUpdate(*columns),
        )


def greedy(rows: int, **changes: Any) -> SamplingPlan:
    """Greedy sampling with the 5 most likely ids' logprobs of each of ``rows`` sequences."""
    fields: dict[str, Any] = {
        "temperature": np.zeros(rows, np.float32),
        "top_k": np.full(rows, -1, np.int32),
        "top_p": np.ones(rows, np.float32),
        "min_p": np.zeros(rows, np.float32),
        "uniform": np.zeros(rows, np.float32),
        "state": np.zeros(rows, np.bool_),
        "top_logprobs": np.full(rows, 5, np.int32),
    }
    return SamplingPlan(**(fields | changes))
