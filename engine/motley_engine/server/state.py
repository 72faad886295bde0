"""What one HTTP process knows: the served model, the line to the engine, and the phase of its life."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from motley_engine.config.schema import EngineConfig
from motley_engine.server.client import EngineClient
from motley_engine.server.errors import unavailable
from motley_engine.server.metrics import RequestMetrics
from motley_engine.server.protocol.sampling import SamplingDefaults
from motley_engine.tokenizer import Tokenizer

ABORT_GRACE = 3.0
"""Seconds that aborted requests get to send their last bytes."""


class Phase(StrEnum):
    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """Facts of the served model that requests are checked against. All lengths in tokens."""

    name: str
    path: str
    tokenizer_path: str
    vocab_size: int
    context_length: int
    """Longest sequence, prompt and output together."""
    pool_tokens: int
    """What the KV pools hold; a sequence that cannot fit alone is refused."""
    eos_token_ids: tuple[int, ...]
    defaults: SamplingDefaults = field(default_factory=SamplingDefaults)

    @property
    def max_sequence(self) -> int:
        return min(self.context_length, self.pool_tokens)


@dataclass(slots=True, kw_only=True)
class ServerState:
    """Everything the routes use. Change the phase through the methods, inside the event loop."""

    config: EngineConfig
    model: ServedModel
    tokenizer: Tokenizer | None
    """None with --skip-tokenizer-init: only token ids go in and out."""
    client: EngineClient
    version: str
    ranks: list[Mapping[str, Any]] = field(default_factory=list)
    """The plan's table, one row per rank, for /get_server_info."""
    metrics: RequestMetrics = field(default_factory=RequestMetrics)
    created: int = field(default_factory=lambda: int(time.time()))
    _ready: bool = False
    _draining: bool = False

    @property
    def phase(self) -> Phase:
        if self.client.failure is not None:
            return Phase.FAILED
        if self._draining:
            return Phase.DRAINING
        return Phase.SERVING if self._ready else Phase.STARTING

    def ready(self) -> None:
        """The engine can take requests."""
        self._ready = True

    def fail(self, reason: str) -> None:
        """The engine is gone: every open request gets an error at once, later ones 503."""
        self.client.fail(reason)

    async def drain(self, timeout: float) -> bool:
        """Refuse new requests and let the open ones end. Those open after ``timeout`` s are aborted; then False."""
        self._draining = True
        self.client.drain()
        if await self.client.wait_idle(timeout):
            return True
        self.client.abort_all("the server is shutting down")
        await self.client.wait_idle(ABORT_GRACE)
        return False

    @property
    def silence_limit(self) -> float:
        """Seconds without a word from the scheduler after which /health turns red."""
        return 2 * self.config.runtime.heartbeat_timeout

    def silence(self) -> float:
        """Seconds since the scheduler's last message."""
        return self.client.silence()

    def check_serving(self) -> None:
        """Raises ApiError 503 unless new requests are welcome."""
        if self.phase is Phase.STARTING:
            raise unavailable("the engine is still starting", "starting", 5)
        if self.phase is Phase.DRAINING:
            raise unavailable("the server is shutting down", "draining", 5)
        if self.phase is Phase.FAILED:
            raise unavailable(f"the engine has stopped: {self.client.failure}", "engine_failed")
