"""``POST /v1/chat/completions``."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import APIRouter, Request
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from motley_engine.messages import LogprobOptions
from motley_engine.server.body import read_body, server_state
from motley_engine.server.choice import Choice, Delta, ScoredToken
from motley_engine.server.errors import bad_request, json_response
from motley_engine.server.generation import Generation
from motley_engine.server.logprobs import chat_logprobs
from motley_engine.server.protocol.answers import (
    Answer,
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    Usage,
)
from motley_engine.server.protocol.base import parse
from motley_engine.server.protocol.openai import ChatRequest, Message, ToolCall
from motley_engine.server.protocol.schema import json_body
from motley_engine.server.resolve import (
    FieldNames,
    Length,
    SequenceRequest,
    choices,
    encode,
    need_tokenizer,
    sequence_request,
)
from motley_engine.server.routes.openai import answer_id, check_model, finish_reason, usage, wants_usage
from motley_engine.server.state import ServerState
from motley_engine.server.streaming import event, start_stream
from motley_engine.tokenizer import ChatTemplateError, Tokenizer

router = APIRouter()


@router.post("/v1/chat/completions", openapi_extra=json_body(ChatRequest))
async def chat_completions(request: Request) -> Response:
    state = server_state(request)
    body = parse(ChatRequest, await read_body(request))
    state.check_serving()
    check_model(state, body.model)
    tokenizer = need_tokenizer(state, "messages")
    sequence = await _sequence(state, body, tokenizer)
    answer = _ChatAnswer(state, body, tokenizer)
    sequences = choices(sequence, body.n or 1)
    generation = Generation(state, [body.rid or answer.id] * len(sequences), sequences)
    generation.watch(request.receive)
    if body.stream:
        return await start_stream(generation, answer.events(generation))
    return json_response(answer.whole(await generation.collect()))


async def _sequence(state: ServerState, body: ChatRequest, tokenizer: Tokenizer) -> SequenceRequest:
    prompt = _render(body, tokenizer)
    prompt_ids = await encode(state, prompt, "messages", add_special=False)
    name = "max_completion_tokens" if body.max_completion_tokens is not None else "max_tokens"
    asked = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    return sequence_request(
        state,
        prompt_ids,
        body,
        Length(asked=asked, default=state.model.defaults.max_new_tokens, minimum=body.min_tokens or 0),
        FieldNames(prompt="messages", max_tokens=name, min_tokens="min_tokens"),
        logprobs=LogprobOptions(top=body.top_logprobs or 0) if body.logprobs else None,
        priority=body.priority or 0,
    )


def _render(body: ChatRequest, tokenizer: Tokenizer) -> str:
    if tokenizer.chat_template is None:
        raise bad_request(
            "messages",
            "this model has no chat template; use /v1/completions or start the server with --chat-template FILE",
        )
    messages = [_template_message(message) for message in body.messages]
    try:
        return tokenizer.render_chat(messages, **body.chat_template_kwargs or {})
    except ChatTemplateError as error:
        raise bad_request("messages", str(error)) from error


def _template_message(message: Message) -> dict[str, Any]:
    """A message as chat templates expect it: text content, known roles, tool arguments as objects."""
    content = message.content
    if isinstance(content, list):
        content = "".join(part.text for part in content)
    rendered: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": content or "",
    }
    for name in ("name", "tool_call_id", "reasoning_content"):
        value = getattr(message, name)
        if value is not None:
            rendered[name] = value
    if message.tool_calls:
        rendered["tool_calls"] = [_template_call(call) for call in message.tool_calls]
    return rendered


def _template_call(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = json.loads(call.function.arguments)
    except (ValueError, RecursionError):
        # an earlier answer may have held broken JSON; the template then shows it as it was
        arguments = call.function.arguments
    return {"id": call.id, "type": call.type, "function": {"name": call.function.name, "arguments": arguments}}


class _ChatAnswer:
    """Shapes of one chat request's answer, whole or in chunks."""

    def __init__(self, state: ServerState, body: ChatRequest, tokenizer: Tokenizer) -> None:
        self.id = answer_id("chatcmpl")
        self._model = state.model.name
        self._created = int(time.time())
        self._tokenizer = tokenizer
        self._n = body.n or 1
        self._logprobs = bool(body.logprobs)
        self._final_usage, self._running_usage = wants_usage(body)

    def whole(self, done: Sequence[Choice]) -> Answer:
        answers = [
            ChatChoice(
                choice.index, ChatMessage(choice.text), self._scores(choice.scores), finish_reason(choice.finish)
            )
            for choice in done
        ]
        return Answer(self.id, "chat.completion", self._created, self._model, answers, usage(done, self._n))

    async def events(self, generation: Generation) -> AsyncIterator[bytes]:
        """The stream: a role chunk per choice, text chunks, one finish chunk per choice, usage if asked."""
        everyone = generation.choices
        roles: list[bytes] = []
        async for changed in generation:
            if not roles:
                roles = [self._chunk(choice, everyone, ChatDelta("assistant", "")) for choice in everyone]
                yield b"".join(roles)
            events = b"".join(self._changes(choice, choice.take(), everyone) for choice in changed)
            if events:
                yield events
        if self._final_usage:
            yield event(self._answer([], usage(everyone, self._n)))

    def _changes(self, choice: Choice, delta: Delta, everyone: Sequence[Choice]) -> bytes:
        events = b""
        if delta.text or delta.scores:
            events = self._chunk(choice, everyone, ChatDelta(content=delta.text), self._scores(delta.scores))
        if delta.finish is not None:
            events += self._chunk(choice, everyone, ChatDelta(), None, finish_reason(delta.finish))
        return events

    def _chunk(
        self,
        choice: Choice,
        everyone: Sequence[Choice],
        delta: ChatDelta,
        logprobs: ChatLogprobs | None = None,
        finish: str | None = None,
    ) -> bytes:
        spent: Usage | UnsetType | None = None if self._final_usage else UNSET
        if self._running_usage:
            spent = usage(everyone, self._n)
        return event(self._answer([ChatChunkChoice(choice.index, delta, logprobs, finish)], spent))

    def _answer(self, chunk: list[ChatChunkChoice], spent: Usage | UnsetType | None) -> Answer:
        return Answer(self.id, "chat.completion.chunk", self._created, self._model, chunk, spent)

    def _scores(self, scores: Sequence[ScoredToken]) -> ChatLogprobs | None:
        return chat_logprobs(scores, self._tokenizer) if self._logprobs else None
