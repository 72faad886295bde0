"""``/generate``, the native API: text or token ids, single or batch, with everything the engine knows."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from motley_engine.messages import LogprobOptions
from motley_engine.server.body import read_body, server_state
from motley_engine.server.choice import Choice
from motley_engine.server.errors import bad_request, json_response
from motley_engine.server.generation import Generation
from motley_engine.server.logprobs import native_entries, native_lists
from motley_engine.server.protocol.base import as_prompts, parse
from motley_engine.server.protocol.native import GenerateRequest, NativeSampling
from motley_engine.server.protocol.schema import json_body
from motley_engine.server.resolve import (
    FieldNames,
    Length,
    SequenceRequest,
    check_count,
    check_ids,
    choices,
    encode,
    sequence_request,
)
from motley_engine.server.state import ServerState
from motley_engine.server.streaming import event, start_stream

router = APIRouter()
T = TypeVar("T")

_DEFAULT_LENGTH = 128


@router.post("/generate", openapi_extra=json_body(GenerateRequest))
@router.put("/generate", openapi_extra=json_body(GenerateRequest))
async def generate(request: Request) -> Response:
    state = server_state(request)
    body = parse(GenerateRequest, await read_body(request))
    state.check_serving()
    plan = await _plan(state, body)
    generation = Generation(state, plan.names, plan.sequences)
    generation.watch(request.receive)
    answer = _NativeAnswer(state, body, plan)
    if body.stream:
        return await start_stream(generation, answer.events(generation))
    answers = [answer.one(choice, generation.elapsed) for choice in await generation.collect()]
    return json_response(answers if plan.many else answers[0])


@dataclass(frozen=True, slots=True)
class _Plan:
    """The sequences of one body: ``names`` for /abort_request, ``ids`` in the answer, ``many`` = it is a list."""

    names: list[str]
    ids: list[str]
    sequences: list[SequenceRequest]
    many: bool


async def _plan(state: ServerState, body: GenerateRequest) -> _Plan:
    param = "text" if body.text is not None else "input_ids"
    prompts = as_prompts(body.prompts)
    batch = isinstance(body.prompts, list) and not isinstance(body.prompts[0], int)
    samplings = _per_prompt(body.sampling_params or NativeSampling(), len(prompts), "sampling_params")
    rids = _rids(body, len(prompts))
    check_count(state, len(prompts), param)
    check_count(state, sum(sampling.n or 1 for sampling in samplings), "sampling_params.n")
    names: list[str] = []
    ids: list[str] = []
    sequences: list[SequenceRequest] = []
    for index, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True)):
        prompt_ids = await encode(state, prompt, f"{param}[{index}]" if batch else param)
        one = _sequence(state, body, sampling, prompt_ids, index, len(prompts))
        copies = choices(one, sampling.n or 1)
        sequences.extend(copies)
        rid = rids[index]
        names.extend([rid] * len(copies))
        ids.extend([rid] if len(copies) == 1 else [f"{rid}-{copy}" for copy in range(len(copies))])
    return _Plan(names, ids, sequences, batch or len(sequences) > 1)


def _rids(body: GenerateRequest, count: int) -> list[str]:
    """One request name per prompt; they must differ."""
    if body.rid is None:
        return [uuid.uuid4().hex for _ in range(count)]
    if isinstance(body.rid, str):
        return [body.rid] if count == 1 else [f"{body.rid}-{index}" for index in range(count)]
    names: list[str] = _per_prompt(body.rid, count, "rid")
    if len(set(names)) < count:
        raise bad_request("rid", "the same name occurs twice in the list")
    return names


def _per_prompt(value: T | list[T], count: int, param: str) -> list[T]:
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise bad_request(param, f"{len(value)} entries for {count} prompts; give one for all or one per prompt")
    return value


def _sequence(
    state: ServerState, body: GenerateRequest, sampling: NativeSampling, prompt_ids: list[int], index: int, count: int
) -> SequenceRequest:
    return sequence_request(
        state,
        prompt_ids,
        sampling,
        Length(
            asked=sampling.max_new_tokens,
            default=state.model.defaults.max_new_tokens or _DEFAULT_LENGTH,
            minimum=sampling.min_new_tokens or 0,
        ),
        FieldNames(
            prompt="text" if body.text is not None else "input_ids",
            max_tokens="sampling_params.max_new_tokens",
            min_tokens="sampling_params.min_new_tokens",
            prefix="sampling_params.",
        ),
        logprobs=_logprobs(state, body, len(prompt_ids), index, count),
        priority=body.priority or 0,
    )


def _logprobs(
    state: ServerState, body: GenerateRequest, prompt_length: int, index: int, count: int
) -> LogprobOptions | None:
    start = _per_prompt(-1 if body.logprob_start_len is None else body.logprob_start_len, count, "logprob_start_len")
    top = _per_prompt(body.top_logprobs_num or 0, count, "top_logprobs_num")
    asked = _asked_ids(body, count)[index]
    check_ids(asked, state.model.vocab_size, "token_ids_logprob")
    if not _per_prompt(False if body.return_logprob is None else body.return_logprob, count, "return_logprob")[index]:
        return None
    if start[index] > prompt_length:
        raise bad_request("logprob_start_len", f"{start[index]} lies beyond the prompt of {prompt_length} tokens")
    return LogprobOptions(start=start[index], top=top[index], token_ids=tuple(asked))


def _asked_ids(body: GenerateRequest, count: int) -> list[list[int]]:
    asked = body.token_ids_logprob or []
    if not asked or isinstance(asked[0], int):
        return [asked] * count
    return _per_prompt(asked, count, "token_ids_logprob")


class _NativeAnswer:
    """Shapes of one native request's answer. Streams repeat the whole text so far, as the API's users expect."""

    def __init__(self, state: ServerState, body: GenerateRequest, plan: _Plan) -> None:
        self._tokenizer = state.tokenizer
        self._text_in_logprobs = state.tokenizer if body.return_text_in_logprobs else None
        self._plan = plan

    async def events(self, generation: Generation) -> AsyncIterator[bytes]:
        async for changed in generation:
            events = []
            for choice in changed:
                choice.take()
                answer = self.one(choice, generation.elapsed)
                events.append(event({**answer, "index": choice.index} if self._plan.many else answer))
            yield b"".join(events)

    def one(self, choice: Choice, elapsed: float) -> dict[str, Any]:
        """One sequence's answer so far."""
        text = {} if self._tokenizer is None else {"text": choice.text}
        return {**text, "output_ids": choice.output_ids, "meta_info": self._meta(choice, elapsed)}

    def _meta(self, choice: Choice, elapsed: float) -> dict[str, Any]:
        meta: dict[str, Any] = {
            "id": self._plan.ids[choice.index],
            "finish_reason": _finish(choice),
            "prompt_tokens": len(choice.request.prompt_ids),
            "completion_tokens": len(choice.output_ids),
            "cached_tokens": choice.cached_tokens,
            "e2e_latency": elapsed,
        }
        if choice.request.logprobs is not None:
            meta.update(self._scores(choice, choice.request.logprobs))
        return meta

    def _scores(self, choice: Choice, wanted: LogprobOptions) -> dict[str, Any]:
        output = [score.logprob for score in choice.scores]
        texts = self._text_in_logprobs
        fields: dict[str, Any] = {}
        for side, entries in (("input", choice.prompt_logprobs), ("output", output)):
            fields[f"{side}_token_logprobs"] = native_entries(entries, texts)
            if wanted.top:
                fields[f"{side}_top_logprobs"] = native_lists([entry.top for entry in entries], texts)
            if wanted.token_ids:
                fields[f"{side}_token_ids_logprobs"] = native_lists([entry.asked for entry in entries], texts)
        return fields


def _finish(choice: Choice) -> dict[str, Any] | None:
    finish = choice.finish
    if finish is None:
        return None
    if finish.kind == "stop":
        return {"type": "stop", "matched": finish.matched}
    if finish.kind == "length":
        return {"type": "length", "length": len(choice.output_ids)}
    return {"type": finish.kind, "message": finish.message}
