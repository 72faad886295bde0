"""Strict request bodies: no coercion, no unknown fields, and every fault becomes a 400 that names its field."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias, TypeVar, cast

from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError

from motley_engine.server.errors import ApiError, bad_request, brief

Prompt: TypeAlias = str | list[int]
"""One prompt: text, or token ids."""
Prompts: TypeAlias = str | list[int] | list[str] | list[list[int]]
"""The four forms in which a field may carry one or several prompts."""

Texts: TypeAlias = str | list[str]

ONE, MANY = "<one>", "<many>"
"""Tags of unions by shape; they are left out of field paths."""


class Body(BaseModel):
    """A JSON object of a request. ``null`` means unset wherever a field is optional."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        use_attribute_docstrings=True,
    )


T = TypeVar("T", bound=Body)


def parse(model: type[T], data: bytes) -> T:
    """Read ``data`` as JSON of type ``model``. Raises ApiError 400 with ``param`` = the first field at fault."""
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise _to_api_error(error, model) from None


class FieldError(ValueError):
    """Raised inside a model validator to blame one field of the object."""

    def __init__(self, field: str, fault: str) -> None:
        super().__init__(fault)
        self.field = field


def refused(way_out: str, *neutral: object) -> PlainValidator:
    """Marks a field that the server knows but does not implement: only null and ``neutral`` values pass."""

    def check(value: object) -> object:
        if value is None or any(type(value) is type(item) and value == item for item in neutral):
            return value
        raise ValueError(f"not supported by this server; {way_out}")

    return PlainValidator(check, json_schema_input_type=Any)


def one_or_many(value: object) -> str:
    """Discriminator of fields that take one value or a list with one per prompt."""
    return MANY if isinstance(value, list) else ONE


def parse_prompts(value: object) -> Prompts:
    """Check the four forms of prompts. Raises ValueError."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError("expected a string, a list of strings, a list of token ids or a list of lists of token ids")
    if not value:
        raise ValueError("must not be empty")
    if _is_ids(value):
        return value
    kind = type(value[0])
    for index, item in enumerate(value):
        if not isinstance(item, str) and not (isinstance(item, list) and item and _is_ids(item)):
            raise ValueError(f"item {index} is neither a string nor a non-empty list of token ids (integers >= 0)")
        if type(item) is not kind:
            raise ValueError(f"item {index} is of another kind than item 0; do not mix texts and token ids")
    return value


def parse_texts(value: object) -> Texts | None:
    """Check a string or a list of strings, null allowed. Raises ValueError."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        for index, item in enumerate(value):
            if not isinstance(item, str):
                raise ValueError(f"item {index} is not a string")
        return value
    raise ValueError("expected a string or a list of strings")


def as_prompts(value: Prompts) -> list[Prompt]:
    """A checked prompt field as a list of single prompts."""
    if isinstance(value, str) or isinstance(value[0], int):
        return cast("list[Prompt]", [value])
    return cast("list[Prompt]", value)


def _is_ids(items: Sequence[object]) -> bool:
    # bool is a subclass of int; true must not pass as 1
    return all(type(item) is int and 0 <= item < 2**31 for item in items)


def _to_api_error(error: ValidationError, model: type[Body]) -> ApiError:
    first = error.errors(include_url=False)[0]
    kind, location = first["type"], first["loc"]
    fault = first.get("ctx", {}).get("error")
    if isinstance(fault, FieldError):
        location = (*location, fault.field)
    if kind == "json_invalid":
        return bad_request("body", f"not valid JSON: {fault}", "invalid_json")
    param = field_path(location) or "body"
    if kind == "extra_forbidden":
        return bad_request(param, f"unknown field{_suggestion(location, model)}", "unknown_field")
    if kind == "missing":
        return bad_request(param, "required field is missing", "missing_field")
    if kind == "value_error":
        return bad_request(param, str(fault), "invalid_value")
    return bad_request(param, f"{first['msg'].lower()}; got {brief(first['input'])}", "invalid_value")


PromptsField = Annotated[Prompts, PlainValidator(parse_prompts, json_schema_input_type=Prompts)]
TextsField = Annotated[Texts | None, PlainValidator(parse_texts, json_schema_input_type=Texts | None)]


def field_path(location: Sequence[int | str]) -> str:
    """``('messages', 0, 'role')`` as ``messages[0].role``."""
    path = ""
    for part in location:
        if part in (ONE, MANY):
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path[:200]


def _suggestion(location: Sequence[int | str], model: type[Body]) -> str:
    if len(location) != 1:
        return ""
    close = difflib.get_close_matches(str(location[0])[:64], model.model_fields, n=1, cutoff=0.75)
    return f"; did you mean {close[0]!r}?" if close else "; remove it"
