"""From checked request fields to what the engine runs: defaults merged, lengths and ids checked against the model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from motley_engine.messages import LogprobOptions
from motley_engine.sampling.params import SamplingParams
from motley_engine.server.errors import ApiError, bad_request, brief
from motley_engine.server.protocol.base import Prompt
from motley_engine.server.protocol.sampling import SamplingDefaults, SamplingFields
from motley_engine.server.state import ServedModel, ServerState
from motley_engine.tokenizer import Tokenizer

# texts longer than this are tokenised in a thread, so that other requests' streams keep flowing
_THREAD_TEXT = 16_384
# below this temperature the division would overflow; the limit of the distribution is the argmax
_GREEDY_BELOW = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldNames:
    """How an API calls the fields that messages must name."""

    prompt: str
    max_tokens: str
    min_tokens: str
    prefix: str = ""
    """Path in front of sampling fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRequest:
    """One sequence to generate and how its tokens become text."""

    prompt_ids: list[int]
    sampling: SamplingParams
    stops: tuple[str, ...] = ()
    keep_stop: bool = False
    skip_special_tokens: bool = True
    logprobs: LogprobOptions | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """Output length: as asked (None = unset), the API's default (None = what fits), and the minimum."""

    asked: int | None
    default: int | None
    minimum: int = 0


def need_tokenizer(state: ServerState, param: str) -> Tokenizer:
    """The tokenizer. Raises ApiError 400 when the server runs without one."""
    if state.tokenizer is None:
        raise bad_request(
            param,
            "this server runs without a tokenizer; send input_ids to /generate or start it without "
            "--skip-tokenizer-init",
        )
    return state.tokenizer


async def encode(state: ServerState, prompt: Prompt, param: str, add_special: bool = True) -> list[int]:
    """Token ids of one prompt. Raises ApiError 400 when it is empty or an id lies outside the vocabulary."""
    if not prompt:
        raise bad_request(param, "must not be empty")
    if isinstance(prompt, str):
        tokenizer = need_tokenizer(state, param)
        if len(prompt) > _THREAD_TEXT:
            ids = await asyncio.to_thread(tokenizer.encode, prompt, add_special)
        else:
            ids = tokenizer.encode(prompt, add_special)
        if not ids:
            raise bad_request(param, "has no tokens")
        return ids
    check_ids(prompt, state.model.vocab_size, param)
    return prompt


def check_ids(ids: Sequence[int], vocab_size: int, param: str) -> None:
    """Raises ApiError 400 naming the first id outside the vocabulary."""
    if ids and max(ids) >= vocab_size:
        index, token = next((index, token) for index, token in enumerate(ids) if token >= vocab_size)
        raise bad_request(param, f"id {token} at position {index} is outside the vocabulary of {vocab_size}")


def sequence_request(
    state: ServerState,
    prompt_ids: list[int],
    fields: SamplingFields,
    length: Length,
    names: FieldNames,
    *,
    logprobs: LogprobOptions | None = None,
    priority: int = 0,
) -> SequenceRequest:
    """Resolve one prompt's request. Raises ApiError 400 naming the field at fault."""
    if fields.stop_strings and state.tokenizer is None:
        need_tokenizer(state, f"{names.prefix}stop")
    ids, max_new = _fit(state, prompt_ids, length, names)
    _check_minimum(length, max_new, names)
    _check_priority(state, priority)
    return SequenceRequest(
        prompt_ids=ids,
        sampling=_sampling_params(state.model, fields, max_new, length.minimum, names),
        stops=fields.stop_strings,
        keep_stop=fields.keep_stop,
        skip_special_tokens=fields.skip_special_tokens is not False,
        logprobs=logprobs,
        priority=priority,
    )


def choices(request: SequenceRequest, n: int) -> list[SequenceRequest]:
    """``n`` copies of a request; a given seed counts up, so that the choices differ and can be repeated."""
    seed = request.sampling.seed
    if seed is None:
        return [request] * n
    return [
        replace(request, sampling=msgspec.structs.replace(request.sampling, seed=(seed + index) % 2**63))
        for index in range(n)
    ]


def check_count(state: ServerState, count: int, param: str) -> None:
    """Raises ApiError 400 when one HTTP request asks for more sequences than the server can hold at all."""
    scheduler = state.config.scheduler
    limit = scheduler.max_running_requests + scheduler.max_queued_requests
    if count > limit:
        raise bad_request(param, f"{count} sequences in one request; this server holds at most {limit}; send fewer")


def _fit(state: ServerState, ids: list[int], length: Length, names: FieldNames) -> tuple[list[int], int]:
    """The prompt and output length that fit the context, or ApiError 400 with both numbers."""
    limit = state.model.max_sequence
    truncate = state.config.server.allow_auto_truncate
    wanted = length.asked if length.asked is not None else 1
    if truncate:
        # keep the end of the prompt: in a chat it holds the question and the opening of the answer
        wanted = min(wanted, limit - 1)
        ids = ids[-max(1, limit - max(1, wanted)) :]
    room = limit - len(ids)
    if max(1, wanted) > room:
        raise _too_long(len(ids), length.asked, limit, names)
    if length.asked is not None:
        return ids, wanted
    return ids, room if length.default is None else min(room, length.default)


def _too_long(prompt: int, asked: int | None, limit: int, names: FieldNames) -> ApiError:
    if asked is None or prompt >= limit:
        fault = f"the prompt has {prompt} tokens; this server's limit is {limit} with at least one more for the answer"
        return bad_request(names.prompt, f"{fault}; shorten the prompt", "context_length_exceeded")
    fault = f"{asked} more tokens after a prompt of {prompt} exceed this server's limit of {limit}"
    return bad_request(
        names.max_tokens, f"{fault}; ask for at most {limit - prompt} or shorten the prompt", "context_length_exceeded"
    )


def _check_minimum(length: Length, max_new: int, names: FieldNames) -> None:
    if length.minimum > max_new:
        raise bad_request(names.min_tokens, f"{length.minimum} exceeds the output length of {max_new}")


def _check_priority(state: ServerState, priority: int) -> None:
    if priority != 0 and not state.config.scheduler.enable_priority_scheduling:
        raise bad_request("priority", f"{priority} has no effect; start the server with --enable-priority-scheduling")


def _sampling_params(
    model: ServedModel, fields: SamplingFields, max_new: int, min_new: int, names: FieldNames
) -> SamplingParams:
    values = {name: _chosen(fields, model.defaults, name) for name in _MERGED}
    temperature, top_k, top_p = values["temperature"], int(values["top_k"]), values["top_p"]
    if top_p == 0:
        # the smallest nucleus is the most likely token
        top_k, top_p = 1, 1.0
    return SamplingParams(
        max_new_tokens=max_new,
        min_new_tokens=min_new,
        temperature=0.0 if temperature < _GREEDY_BELOW else temperature,
        top_k=top_k if 0 < top_k < model.vocab_size else -1,
        top_p=top_p,
        min_p=values["min_p"],
        repetition_penalty=values["repetition_penalty"],
        frequency_penalty=values["frequency_penalty"],
        presence_penalty=values["presence_penalty"],
        logit_bias=_logit_bias(fields.logit_bias, model.vocab_size, names),
        seed=None if fields.seed is None else fields.seed % 2**63,
        stop_token_ids=_stop_ids(fields, model, names),
    )


_MERGED = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
)


def _chosen(fields: SamplingFields, defaults: SamplingDefaults, name: str) -> float:
    value: float | None = getattr(fields, name)
    default: float = getattr(defaults, name)
    return default if value is None else value


def _logit_bias(bias: Mapping[str, float] | None, vocab_size: int, names: FieldNames) -> dict[int, float] | None:
    if not bias:
        return None
    resolved = {int(key): value for key, value in bias.items()}
    for token in resolved:
        if token >= vocab_size:
            raise bad_request(
                f"{names.prefix}logit_bias", f"id {brief(token)} is outside the vocabulary of {vocab_size}"
            )
    return resolved


def _stop_ids(fields: SamplingFields, model: ServedModel, names: FieldNames) -> tuple[int, ...]:
    asked = fields.stop_token_ids or []
    check_ids(asked, model.vocab_size, f"{names.prefix}stop_token_ids")
    ends = () if fields.ignore_eos else model.eos_token_ids
    return tuple(sorted({*asked, *ends}))
