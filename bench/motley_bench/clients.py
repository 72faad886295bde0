"""Talks to a server under load: one request in, the arrival time of every token out.

Knows SGLang's native API and OpenAI's.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiohttp


@dataclass(slots=True)
class Sample:
    """What one request saw. Times are seconds on the monotonic clock; ``arrivals`` holds (time, tokens so far)."""

    started: float
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    error: str = ""

    @property
    def ttft(self) -> float:
        return self.arrivals[0][0] - self.started

    @property
    def ended(self) -> float:
        return self.arrivals[-1][0]

    @property
    def tpot(self) -> float | None:
        """Mean seconds per output token after the first; None for one-token answers."""
        if self.output_tokens < 2:
            return None
        return (self.ended - self.arrivals[0][0]) / (self.output_tokens - 1)


class Client(Protocol):
    async def generate(self, session: aiohttp.ClientSession, prompt: list[int], output_len: int) -> Sample: ...


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    async for raw in response.content:
        line = raw.strip()
        if not line.startswith(b"data:"):
            continue
        body = line[5:].strip()
        if body == b"[DONE]":
            return
        yield json.loads(body)


@dataclass(frozen=True, slots=True)
class NativeClient:
    """SGLang's /generate with token ids."""

    base_url: str

    async def generate(self, session: aiohttp.ClientSession, prompt: list[int], output_len: int) -> Sample:
        body = {
            "input_ids": prompt,
            "sampling_params": {"temperature": 0, "max_new_tokens": output_len, "ignore_eos": True},
            "stream": True,
        }
        sample = Sample(started=time.monotonic())
        async with session.post(f"{self.base_url}/generate", json=body) as response:
            if response.status != 200:
                sample.error = f"HTTP {response.status}: {(await response.text())[:200]}"
                return sample
            async for event in _events(response):
                if "error" in event:
                    sample.error = str(event["error"])
                    return sample
                meta = event["meta_info"]
                sample.output_tokens = int(meta["completion_tokens"])
                sample.arrivals.append((time.monotonic(), sample.output_tokens))
                sample.prompt_tokens = int(meta["prompt_tokens"])
                sample.cached_tokens = int(meta.get("cached_tokens", 0))
        return _checked(sample, output_len)


@dataclass(frozen=True, slots=True)
class OpenAIClient:
    """/v1/completions with token ids; works with any server that accepts a list of ids as prompt and ``ignore_eos``."""

    base_url: str
    model: str

    async def generate(self, session: aiohttp.ClientSession, prompt: list[int], output_len: int) -> Sample:
        body = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": output_len,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        sample = Sample(started=time.monotonic())
        async with session.post(f"{self.base_url}/v1/completions", json=body) as response:
            if response.status != 200:
                sample.error = f"HTTP {response.status}: {(await response.text())[:200]}"
                return sample
            async for event in _events(response):
                if "error" in event:
                    sample.error = str(event["error"])
                    return sample
                if event.get("choices"):
                    sample.arrivals.append((time.monotonic(), len(sample.arrivals) + 1))
                if usage := event.get("usage"):
                    sample.prompt_tokens = int(usage["prompt_tokens"])
                    sample.output_tokens = int(usage["completion_tokens"])
                    details = usage.get("prompt_tokens_details") or {}
                    sample.cached_tokens = int(details.get("cached_tokens") or 0)
        return _checked(sample, output_len)


def _checked(sample: Sample, output_len: int) -> Sample:
    if not sample.arrivals:
        sample.error = "the stream ended without a token"
    elif sample.output_tokens != output_len:
        sample.error = f"asked {output_len} tokens, got {sample.output_tokens}"
    return sample
