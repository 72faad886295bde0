"""Bodies of the OpenAI routes: what is implemented, what is ignored on purpose, and what is refused by name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, field_validator, model_validator

from motley_engine.server.errors import brief
from motley_engine.server.protocol.base import Body, FieldError, PromptsField, refused
from motley_engine.server.protocol.sampling import SamplingFields, StreamOptions

NO_TOOLS = "answer without tools (tools: [] or tool_choice: 'none')"
NO_GRAMMAR = "describe the wanted format in the prompt"
TEXT_ONLY = "only text goes in and out"
_SET_BY_SERVER = ("self", "messages", "tools", "chat_template", "add_generation_prompt")


class OpenAIRequest(SamplingFields):
    """Fields that chat and completions share, the extras of ``extra_body`` included."""

    model: str | None = None
    """Name from /v1/models; unset: the served model."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=0)
    min_tokens: int | None = Field(None, ge=0)
    priority: int | None = Field(None, ge=-(2**31), le=2**31 - 1)
    rid: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Name for /abort_request; unset: the response id."""
    lane: Literal["heavy"] | None = None

    # accepted and ignored: they name the caller or hint at caching and billing, and change no answer
    user: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None

    json_schema: Annotated[Any, refused(NO_GRAMMAR)] = None
    regex: Annotated[Any, refused(NO_GRAMMAR)] = None
    ebnf: Annotated[Any, refused(NO_GRAMMAR)] = None
    structural_tag: Annotated[Any, refused(NO_GRAMMAR)] = None
    lora_path: Annotated[Any, refused("serve the adapted model itself")] = None

    @model_validator(mode="after")
    def _check_stream_options(self) -> OpenAIRequest:
        if self.stream_options is not None and not self.stream:
            raise FieldError("stream_options", "only allowed together with stream: true")
        return self


class TextPart(Body):
    type: Literal["text"]
    text: str


class FunctionCall(Body):
    name: str
    arguments: str


class ToolCall(Body):
    """A call that an earlier assistant turn made; it is shown to the chat template."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall
    index: int | None = None


def _parse_content(value: object) -> str | list[TextPart] | None:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError(f"expected a string or a list of parts; got {brief(value)}")
    return [_parse_part(index, part) for index, part in enumerate(value)]


def _parse_part(index: int, part: object) -> TextPart:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise ValueError(f"part {index} must be an object with a string 'type'")
    if part["type"] != "text":
        raise ValueError(f"part {index} has type {brief(part['type'])}; only 'text' parts are supported")
    if not isinstance(part.get("text"), str):
        raise ValueError(f"part {index} must have a string 'text'")
    return TextPart(type="text", text=part["text"])


Content = Annotated[
    str | list[TextPart] | None,
    PlainValidator(_parse_content, json_schema_input_type=str | list[TextPart] | None),
]


class Message(Body):
    """One turn of a conversation. ``developer`` is shown to the chat template as ``system``."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = Field(None, max_length=128, fail_fast=True)
    tool_call_id: str | None = None
    reasoning_content: str | None = None

    # parts of an answer that clients send back unchanged
    refusal: str | None = None
    annotations: Annotated[Any, refused(TEXT_ONLY, [])] = None
    audio: Annotated[Any, refused(TEXT_ONLY)] = None
    function_call: Annotated[Any, refused("use tool_calls")] = None

    @model_validator(mode="after")
    def _check_content(self) -> Message:
        if self.content is None and not (self.role == "assistant"):
            raise FieldError("content", f"required for role {self.role!r}")
        if self.role == "assistant" and self.content is None and not self.tool_calls and self.refusal is None:
            raise FieldError("content", "required unless tool_calls is given")
        if self.tool_calls and self.role != "assistant":
            raise FieldError("tool_calls", f"not allowed for role {self.role!r}")
        if self.role == "tool" and self.tool_call_id is None:
            raise FieldError("tool_call_id", "required for role 'tool'")
        return self


class ChatRequest(OpenAIRequest):
    """``POST /v1/chat/completions``."""

    messages: list[Message] = Field(min_length=1, max_length=16384, fail_fast=True)
    max_completion_tokens: int | None = Field(None, ge=1)
    max_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    chat_template_kwargs: dict[str, Any] | None = Field(None, max_length=64)
    """Arguments for the model's chat template, such as enable_thinking."""
    parallel_tool_calls: bool | None = None

    tools: Annotated[Any, refused(NO_TOOLS, [])] = None
    tool_choice: Annotated[Any, refused(NO_TOOLS, "none", "auto")] = None
    functions: Annotated[Any, refused(NO_TOOLS, [])] = None
    function_call: Annotated[Any, refused(NO_TOOLS, "none", "auto")] = None
    response_format: Annotated[
        Any, refused(f"{NO_GRAMMAR} (response_format: {{'type': 'text'}})", {"type": "text"})
    ] = None
    modalities: Annotated[Any, refused(TEXT_ONLY, ["text"])] = None
    audio: Annotated[Any, refused(TEXT_ONLY)] = None
    prediction: Annotated[Any, refused("leave it out; the answer is the same")] = None
    reasoning_effort: Annotated[Any, refused("use chat_template_kwargs if the model's template has such a switch")] = (
        None
    )
    verbosity: Annotated[Any, refused("say in the prompt how long the answer should be", "medium")] = None
    web_search_options: Annotated[Any, refused("put search results into the prompt")] = None

    @field_validator("chat_template_kwargs")
    @classmethod
    def _check_arguments(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        for reserved in _SET_BY_SERVER:
            if value and reserved in value:
                raise ValueError(f"{reserved!r} is set by the server")
        return value

    @model_validator(mode="after")
    def _check_chat(self) -> ChatRequest:
        if self.top_logprobs is not None and not self.logprobs:
            raise FieldError("top_logprobs", "only allowed together with logprobs: true")
        both = self.max_tokens is not None and self.max_completion_tokens is not None
        if both and self.max_tokens != self.max_completion_tokens:
            raise FieldError("max_tokens", "differs from max_completion_tokens; send one of them")
        return self


class CompletionRequest(OpenAIRequest):
    """``POST /v1/completions``."""

    prompt: PromptsField
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=20)
    best_of: int | None = Field(None, ge=1)
    suffix: Annotated[Any, refused("put the text after the cursor into the prompt in the model's own format")] = None
    response_format: Annotated[
        Any, refused(f"{NO_GRAMMAR} (response_format: {{'type': 'text'}})", {"type": "text"})
    ] = None

    @model_validator(mode="after")
    def _check_best_of(self) -> CompletionRequest:
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise FieldError(
                "best_of", f"{self.best_of} differs from n: {self.n or 1}; only equal values are supported"
            )
        return self
