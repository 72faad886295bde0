"""``POST /v1/completions``."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence

from fastapi import APIRouter, Request
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from motley_engine.messages import LogprobOptions
from motley_engine.server.body import read_body, server_state
from motley_engine.server.choice import Choice, Delta, ScoredToken
from motley_engine.server.errors import json_response
from motley_engine.server.generation import Generation
from motley_engine.server.logprobs import completion_logprobs, prompt_scores
from motley_engine.server.protocol.answers import Answer, CompletionChoice, CompletionLogprobs, Usage
from motley_engine.server.protocol.base import Prompt, as_prompts, parse
from motley_engine.server.protocol.openai import CompletionRequest
from motley_engine.server.protocol.schema import json_body
from motley_engine.server.resolve import (
    FieldNames,
    Length,
    SequenceRequest,
    check_count,
    choices,
    encode,
    need_tokenizer,
    sequence_request,
)
from motley_engine.server.routes.openai import answer_id, check_model, finish_reason, usage, wants_usage
from motley_engine.server.state import ServerState
from motley_engine.server.streaming import event, start_stream
from motley_engine.tokenizer import Tokenizer

router = APIRouter()

# OpenAI's default for this route
_DEFAULT_LENGTH = 16


@router.post("/v1/completions", openapi_extra=json_body(CompletionRequest))
async def completions(request: Request) -> Response:
    state = server_state(request)
    body = parse(CompletionRequest, await read_body(request))
    state.check_serving()
    check_model(state, body.model)
    tokenizer = need_tokenizer(state, "prompt")
    prompts, n = as_prompts(body.prompt), body.n or 1
    check_count(state, len(prompts), "prompt")
    check_count(state, len(prompts) * n, "n")
    requests = [await _sequence(state, body, prompt) for prompt in prompts]
    answer = _CompletionAnswer(state, body, tokenizer, _echoes(body, prompts, requests, tokenizer))
    sequences = [choice for sequence in requests for choice in choices(sequence, n)]
    generation = Generation(state, [body.rid or answer.id] * len(sequences), sequences)
    generation.watch(request.receive)
    if body.stream:
        return await start_stream(generation, answer.events(generation))
    return json_response(answer.whole(await generation.collect()))


async def _sequence(state: ServerState, body: CompletionRequest, prompt: Prompt) -> SequenceRequest:
    logprobs = None
    if body.logprobs is not None:
        logprobs = LogprobOptions(start=0 if body.echo else -1, top=body.logprobs)
    return sequence_request(
        state,
        await encode(state, prompt, "prompt"),
        body,
        Length(
            asked=body.max_tokens,
            default=state.model.defaults.max_new_tokens or _DEFAULT_LENGTH,
            minimum=body.min_tokens or 0,
        ),
        FieldNames(prompt="prompt", max_tokens="max_tokens", min_tokens="min_tokens"),
        logprobs=logprobs,
        priority=body.priority or 0,
    )


def _echoes(
    body: CompletionRequest, prompts: Sequence[Prompt], requests: Sequence[SequenceRequest], tokenizer: Tokenizer
) -> list[str]:
    """The text that each prompt contributes to its choices' texts."""
    if not body.echo:
        return [""] * len(prompts)
    return [
        prompt if isinstance(prompt, str) else tokenizer.decode(request.prompt_ids, request.skip_special_tokens)
        for prompt, request in zip(prompts, requests, strict=True)
    ]


class _CompletionAnswer:
    """Shapes of one completion request's answer, whole or in chunks."""

    def __init__(
        self, state: ServerState, body: CompletionRequest, tokenizer: Tokenizer, echoes: Sequence[str]
    ) -> None:
        self.id = answer_id("cmpl")
        self._model = state.model.name
        self._created = int(time.time())
        self._tokenizer = tokenizer
        self._n = body.n or 1
        self._echoes = echoes
        self._echoed: set[int] = set()
        self._logprobs = body.logprobs is not None
        self._final_usage, self._running_usage = wants_usage(body)

    def whole(self, done: Sequence[Choice]) -> Answer:
        answers = [self._choice(choice, choice.take()) for choice in done]
        return self._answer(answers, usage(done, self._n))

    async def events(self, generation: Generation) -> AsyncIterator[bytes]:
        """The stream: text chunks, the last of each choice with its finish reason, then usage if asked."""
        everyone = generation.choices
        async for changed in generation:
            events = b"".join(self._chunk(choice, everyone) for choice in changed)
            if events:
                yield events
        if self._final_usage:
            yield event(self._answer([], usage(everyone, self._n)))

    def _chunk(self, choice: Choice, everyone: Sequence[Choice]) -> bytes:
        answer = self._choice(choice, choice.take())
        if not answer.text and answer.logprobs is None and answer.finish_reason is None:
            return b""
        spent: Usage | UnsetType | None = None if self._final_usage else UNSET
        if self._running_usage:
            spent = usage(everyone, self._n)
        return event(self._answer([answer], spent))

    def _choice(self, choice: Choice, delta: Delta) -> CompletionChoice:
        """What ``delta`` adds to a choice; the first time, the echoed prompt too."""
        echo = self._echoes[choice.index // self._n]
        text = delta.text
        scores = [ScoredToken(score.logprob, score.offset + len(echo)) for score in delta.scores]
        if choice.index not in self._echoed:
            self._echoed.add(choice.index)
            text = echo + text
            scores = self._prompt_scores(choice, echo) + scores
        logprobs = self._scores(scores)
        reason = None if delta.finish is None else finish_reason(delta.finish)
        return CompletionChoice(choice.index, text, logprobs, reason)

    def _prompt_scores(self, choice: Choice, echo: str) -> list[ScoredToken]:
        if not choice.prompt_logprobs:
            return []
        return prompt_scores(choice.prompt_logprobs, choice.request.prompt_ids, echo, self._tokenizer)

    def _scores(self, scores: Sequence[ScoredToken]) -> CompletionLogprobs | None:
        return completion_logprobs(scores, self._tokenizer) if self._logprobs and scores else None

    def _answer(self, content: list[CompletionChoice], spent: Usage | UnsetType | None) -> Answer:
        return Answer(self.id, "text_completion", self._created, self._model, content, spent)
