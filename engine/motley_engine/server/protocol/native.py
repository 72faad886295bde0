"""Bodies of ``/generate`` and ``/abort_request``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PlainValidator, Tag, model_validator

from motley_engine.server.protocol.base import (
    MANY,
    ONE,
    Body,
    FieldError,
    Prompts,
    TextsField,
    one_or_many,
    parse_prompts,
    refused,
)
from motley_engine.server.protocol.sampling import SamplingFields

NO_GRAMMAR = "describe the wanted format in the prompt"
TEXT_ONLY = "send text or input_ids"
NO_ADDRESSES = "requests never carry addresses or rooms of servers"


class NativeSampling(SamplingFields):
    """``sampling_params`` of one prompt."""

    max_new_tokens: int | None = Field(None, ge=0)
    min_new_tokens: int | None = Field(None, ge=0)

    json_schema: Annotated[Any, refused(NO_GRAMMAR)] = None
    regex: Annotated[Any, refused(NO_GRAMMAR)] = None
    ebnf: Annotated[Any, refused(NO_GRAMMAR)] = None
    structural_tag: Annotated[Any, refused(NO_GRAMMAR)] = None
    stop_regex: Annotated[Any, refused("use stop", [])] = None
    custom_params: Annotated[Any, refused("there are no custom logit processors", {})] = None


def _parse_input_ids(value: object) -> list[int] | list[list[int]] | None:
    if value is None:
        return None
    prompts = parse_prompts(value)
    if isinstance(prompts, str) or isinstance(prompts[0], str):
        raise ValueError("expected token ids; send text in the field 'text'")
    return prompts


def _parse_id_lists(value: object) -> list[int] | list[list[int]] | None:
    return None if value in (None, []) else _parse_input_ids(value)


IdLists = list[int] | list[list[int]] | None
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Rid = Annotated[str, Field(min_length=1, max_length=128)]
Start = Annotated[int, Field(ge=-1)]
Top = Annotated[int, Field(ge=0, le=128)]
Sampling = Annotated[
    Annotated[NativeSampling, Tag(ONE)] | Annotated[list[NativeSampling], Field(fail_fast=True), Tag(MANY)],
    Discriminator(one_or_many),
]
Rids = Annotated[Annotated[Rid, Tag(ONE)] | Annotated[list[Rid], Tag(MANY)], Discriminator(one_or_many)]
Flags = Annotated[Annotated[bool, Tag(ONE)] | Annotated[list[bool], Tag(MANY)], Discriminator(one_or_many)]
Starts = Annotated[Annotated[Start, Tag(ONE)] | Annotated[list[Start], Tag(MANY)], Discriminator(one_or_many)]
Tops = Annotated[Annotated[Top, Tag(ONE)] | Annotated[list[Top], Tag(MANY)], Discriminator(one_or_many)]


class GenerateRequest(Body):
    """``POST /generate``: exactly one of ``text`` and ``input_ids``; a list of prompts is a batch."""

    text: TextsField = None
    input_ids: Annotated[IdLists, PlainValidator(_parse_input_ids, json_schema_input_type=IdLists)] = None
    sampling_params: Sampling | None = None
    """One object for all prompts, or one per prompt."""
    rid: Rids | None = None
    stream: bool | None = None
    return_logprob: Flags | None = None
    logprob_start_len: Starts | None = None
    """First prompt position whose logprob is wanted; -1 = output only."""
    top_logprobs_num: Tops | None = None
    token_ids_logprob: Annotated[IdLists, PlainValidator(_parse_id_lists, json_schema_input_type=IdLists)] = None
    return_text_in_logprobs: bool | None = None
    priority: int | None = Field(None, ge=-(2**31), le=2**31 - 1)
    lane: Literal["heavy"] | None = None

    input_embeds: Annotated[Any, refused(TEXT_ONLY)] = None
    image_data: Annotated[Any, refused(TEXT_ONLY, [])] = None
    video_data: Annotated[Any, refused(TEXT_ONLY, [])] = None
    audio_data: Annotated[Any, refused(TEXT_ONLY, [])] = None
    modalities: Annotated[Any, refused(TEXT_ONLY, [])] = None
    lora_path: Annotated[Any, refused("serve the adapted model itself")] = None
    return_hidden_states: Annotated[Any, refused("hidden states stay on the ranks", False)] = None
    custom_logit_processor: Annotated[Any, refused("use logit_bias")] = None
    session_params: Annotated[Any, refused("send the whole prompt; the prefix cache finds it", {})] = None
    bootstrap_host: Annotated[Any, refused(NO_ADDRESSES)] = None
    bootstrap_port: Annotated[Any, refused(NO_ADDRESSES)] = None
    bootstrap_room: Annotated[Any, refused(NO_ADDRESSES)] = None

    @model_validator(mode="after")
    def _check_inputs(self) -> GenerateRequest:
        if (self.text is None) == (self.input_ids is None):
            raise FieldError("text", "exactly one of text and input_ids must be given")
        if self.text == []:
            raise FieldError("text", "must not be empty")
        return self

    @property
    def prompts(self) -> Prompts:
        """The one input given."""
        prompts = self.text if self.text is not None else self.input_ids
        assert prompts is not None
        return prompts


class AbortRequest(Body):
    """``POST /abort_request``: one request by name, or all."""

    rid: str | None = None
    abort_all: bool | None = None

    @model_validator(mode="after")
    def _check_target(self) -> AbortRequest:
        if bool(self.rid) == bool(self.abort_all):
            raise FieldError("rid", "send either a rid or abort_all: true")
        return self
