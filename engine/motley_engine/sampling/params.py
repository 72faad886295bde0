"""Sampling parameters of one request, checked and resolved. Knows nothing of text: stop strings are the server's."""

from __future__ import annotations

import msgspec


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Resolved parameters; the server has already merged request, preferred and generation-config values.

    ``temperature`` 0 means greedy. ``top_k`` -1 is off. Penalties at their neutral values (1, 0, 0) cost nothing.
    ``stop_token_ids`` holds every id that ends the request (the model's own end ids included unless ``ignore_eos``).
    """

    max_new_tokens: int = 128
    min_new_tokens: int = 0
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: dict[int, float] | None = None
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0 or self.top_k == 1

    @property
    def penalised(self) -> bool:
        neutral = (1.0, 0.0, 0.0)
        return (self.repetition_penalty, self.frequency_penalty, self.presence_penalty) != neutral
