"""Sampling parameters as users write them, shared by both APIs, and their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator

from motley_engine.server.protocol.base import Body, Texts, TextsField, field_path

MAX_STOPS = 16
MAX_STOP_LENGTH = 1024


class SamplingFields(Body):
    """What both APIs call by the same names. Unset fields take the server's defaults."""

    temperature: float | None = Field(None, ge=0, le=2)
    """0 is greedy."""
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=2**31 - 1)
    """-1 and 0 turn it off."""
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(None, max_length=1024)
    """Token id (as a string) to the value added to its logit."""
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    n: int | None = Field(None, ge=1, le=128)
    stop: TextsField = None
    stop_token_ids: list[Annotated[int, Field(ge=0, lt=2**31)]] | None = Field(None, max_length=1024, fail_fast=True)
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    """Accepted for compatibility; fast tokenizers write no such spaces."""
    no_stop_trim: bool | None = None
    """Keep the stop string or token in the text."""
    include_stop_str_in_output: bool | None = None
    """Another name of ``no_stop_trim``."""

    @field_validator("stop")
    @classmethod
    def _check_stop(cls, value: Texts | None) -> Texts | None:
        stops = [value] if isinstance(value, str) else value or []
        if len(stops) > MAX_STOPS:
            raise ValueError(f"{len(stops)} stop strings; at most {MAX_STOPS} are allowed")
        for stop in stops:
            if not 0 < len(stop) <= MAX_STOP_LENGTH:
                raise ValueError(f"a stop string must have 1 to {MAX_STOP_LENGTH} characters; got {len(stop)}")
        return value

    @field_validator("logit_bias")
    @classmethod
    def _check_bias(cls, value: dict[str, float] | None) -> dict[str, float] | None:
        for key in value or {}:
            if not (key.isascii() and key.isdigit() and len(key) <= 10):
                raise ValueError(f"key {key[:40]!r} is not a token id")
        return value

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def keep_stop(self) -> bool:
        return bool(self.no_stop_trim or self.include_stop_str_in_output)


class SamplingDefaults(Body):
    """Server-side values for fields that a request leaves unset."""

    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, ge=0, le=1)
    top_k: int = Field(-1, ge=-1, le=2**31 - 1)
    min_p: float = Field(0.0, ge=0, le=1)
    repetition_penalty: float = Field(1.0, gt=0, le=10)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    max_new_tokens: int | None = Field(None, ge=1)
    """Length where the request gives none; unset: 128 for /generate, 16 for /v1/completions, the context for chat."""

    @classmethod
    def merged(cls, preferred: Mapping[str, Any], generation_config: Mapping[str, Any]) -> SamplingDefaults:
        """Defaults from ``--preferred-sampling-params`` over the model's generation config.

        Keys of the generation config that are no sampling parameter are ignored; unknown preferred keys are an error.
        Raises ValueError that names the source, the field and the fault.
        """
        known = cls.model_fields.keys() - {"max_new_tokens"}
        model = {key: value for key, value in generation_config.items() if key in known and value is not None}
        _check(cls, model, "the model's generation config")
        _check(cls, preferred, "--preferred-sampling-params")
        return cls(**{**model, **preferred})


class StreamOptions(Body):
    """What a stream carries besides text."""

    include_usage: bool | None = None
    """A last chunk with the request's usage and no choices."""
    continuous_usage_stats: bool | None = None
    """Usage so far in every chunk."""


def _check(model: type[SamplingDefaults], values: Mapping[str, Any], source: str) -> None:
    try:
        model.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(
            f"{source}: {field_path(first['loc'])}: {first['msg'].lower()}; got {first['input']!r}"
        ) from None
