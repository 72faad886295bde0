"""The request bodies in the OpenAPI document at /openapi.json."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from motley_engine.server.protocol.base import Body
from motley_engine.server.protocol.native import AbortRequest, GenerateRequest
from motley_engine.server.protocol.openai import ChatRequest, CompletionRequest

_REF = "#/components/schemas/{model}"
_BODIES: tuple[type[Body], ...] = (AbortRequest, ChatRequest, CompletionRequest, GenerateRequest)


def json_body(model: type[Body]) -> dict[str, Any]:
    """``openapi_extra`` of a route that reads ``model``."""
    schema = {"$ref": _REF.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def body_schemas() -> dict[str, Any]:
    """JSON schemas of all bodies and their parts, by name."""
    _, document = models_json_schema([(body, "validation") for body in _BODIES], ref_template=_REF)
    schemas: dict[str, Any] = document["$defs"]
    return schemas
