"""Hugging Face transformers on the same GGUF weights in float32: greedy continuations and the gap of any near-tie.

Continuations are cached on disk under a key of everything they depend on, since they take minutes.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
import transformers

from motley_planner.sources import resolve_model

NEAR_TIE = 1e-4


@dataclass(frozen=True)
class Oracle:
    uri: str

    @cached_property
    def path(self) -> Path:
        return resolve_model(self.uri).path

    @cached_property
    def tokenizer(self):
        return transformers.AutoTokenizer.from_pretrained(self.path.parent, gguf_file=self.path.name)

    @cached_property
    def model(self):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            self.path.parent, gguf_file=self.path.name, dtype=torch.float32
        )
        return model.eval()

    def encode(self, text: str, chat: bool) -> list[int]:
        if chat and self.tokenizer.chat_template:
            messages = [{"role": "user", "content": text}]
            rendered = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            return self.tokenizer(rendered, add_special_tokens=False).input_ids
        return self.tokenizer(text).input_ids

    @torch.inference_mode()
    def greedy(self, ids: list[int], new_tokens: int) -> list[int]:
        """The continuation without stopping at end ids, so that every prompt compares the same number of tokens."""
        cache = self._cache_file(ids, new_tokens)
        if cache.exists():
            return json.loads(cache.read_text())
        past = None
        step = torch.tensor([ids])
        out: list[int] = []
        for _ in range(new_tokens):
            result = self.model(step, past_key_values=past, use_cache=True, logits_to_keep=1)
            past = result.past_key_values
            out.append(int(result.logits[0, -1].argmax()))
            step = torch.tensor([out[-1:]])
        cache.parent.mkdir(parents=True, exist_ok=True)
        partial = cache.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(out))
        partial.replace(cache)
        return out

    @torch.inference_mode()
    def gaps(self, ids: list[int], output: list[int]) -> list[float]:
        """How far each output token's logit lies below the best one, given the output before it (teacher forcing)."""
        logits = self.model(torch.tensor([ids + output[:-1]]), logits_to_keep=len(output)).logits[0]
        chosen = logits.gather(1, torch.tensor(output)[:, None])[:, 0]
        return (logits.max(dim=1).values - chosen).tolist()

    def _cache_file(self, ids: list[int], new_tokens: int) -> Path:
        stat = self.path.stat()
        facts = [self.uri, stat.st_size, torch.__version__, transformers.__version__, ids, new_tokens]
        key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return root / "motley" / "oracle" / f"{key}.json"
