"""Renders chat templates as transformers does: Jinja in a sandbox, with the helpers that published templates use."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

Message = Mapping[str, Any]

REFUSALS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What code inside a template can raise because of the messages it was given."""


class ChatTemplateError(ValueError):
    """A chat that cannot be rendered: no template, or the template refuses the messages. The client's fault."""


class ChatTemplate:
    """A compiled template. ChatTemplateError if it is no valid Jinja."""

    def __init__(self, source: str) -> None:
        self.source = source
        try:
            self._template = _environment().from_string(source)
        except TemplateError as error:
            raise ChatTemplateError(f"the chat template is not valid Jinja: {error}") from error

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None, variables: Mapping[str, Any]
    ) -> str:
        """The prompt text. ChatTemplateError with the template's own words if it refuses the messages."""
        given = [{key: value for key, value in message.items() if value is not None} for message in messages]
        try:
            return self._template.render({**variables, "messages": given, "tools": tools, "documents": None})
        except REFUSALS as error:
            raise ChatTemplateError(f"the chat template refuses these messages: {error}") from error


class _Generation(Extension):
    """``{% generation %}`` marks the assistant's text for training; for serving its body is all that counts."""

    tags = {"generation"}  # noqa: RUF012 - jinja declares it as a plain set

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models were trained on it; Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
