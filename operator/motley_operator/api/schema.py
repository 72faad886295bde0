"""pydantic types -> structural OpenAPI schemas as the API server wants them.

Structural means: no references, every node typed, no titles, nullability expressed by absence. Empty defaults are left
out. An object whose fields have defaults gets all of them as its own default, so that they apply when the whole object
is absent, and so that the API server can run the object's rules over its default.
"""

from __future__ import annotations

from typing import Any

from motley_operator.api.base import QUANTITY_PATTERN, Schema
from motley_operator.api.rules import Rule

JSON = dict[str, Any]
HINT = "hint"
_DROPPED = ("title", "default", "additionalProperties", "$ref", "$defs", "anyOf", "const", HINT)


def described_schema(model: type[Schema]) -> JSON:
    """Structural schema of ``model`` that still carries the ``hint`` texts of its fields (for error messages)."""
    raw = model.model_json_schema(by_alias=True)
    return _convert(raw, raw.get("$defs", {}))


def structural_schema(model: type[Schema], rules: tuple[Rule, ...] = ()) -> JSON:
    """Schema of ``model`` for a CRD, with the CEL rules at their nodes and ``metadata`` left to the API server."""
    schema: JSON = _without_hints(described_schema(model))
    schema["properties"]["metadata"] = {"type": "object"}
    schema["properties"]["apiVersion"] = {"type": "string", "maxLength": 64}
    schema["properties"]["kind"] = {"type": "string", "maxLength": 64}
    schema["required"] = [name for name in schema["required"] if name == "spec"]
    for rule in rules:
        node = node_at(schema, rule.at)
        entry = {"rule": rule.cel, "message": rule.message, "fieldPath": f".{rule.field}"}
        if rule.at == "":
            # the API server lets rules name no field below metadata
            del entry["fieldPath"]
            entry["message"] = f"{rule.field} {rule.message}"
        node.setdefault("x-kubernetes-validations", []).append(entry)
    if not schema["required"]:
        del schema["required"]
    return schema


def node_at(schema: JSON, path: str) -> JSON:
    """The schema node at ``path`` (``spec.engine.env[]``; ``""`` is the root). Raises KeyError when there is none."""
    node = schema
    for step in path.split(".") if path else ():
        node = node["properties"][step.removesuffix("[]")]
        if step.endswith("[]"):
            node = node["items"]
    return node


def _convert(node: JSON, definitions: JSON) -> JSON:
    merged = _merged(node, definitions)
    schema: JSON = {key: value for key, value in merged.items() if key not in _DROPPED and key != "properties"}
    if merged.get("x-kubernetes-int-or-string"):
        del schema["type"]
        schema |= {"anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": QUANTITY_PATTERN}
    if "const" in merged:
        schema |= {"type": "string", "enum": [merged["const"]]}
    if "properties" in merged:
        schema["properties"] = {key: _convert(value, definitions) for key, value in merged["properties"].items()}
    if "items" in merged:
        schema["items"] = _convert(merged["items"], definitions)
    values = merged.get("additionalProperties")
    if isinstance(values, dict):
        schema["additionalProperties"] = _convert(values, definitions)
    if HINT in merged:
        schema[HINT] = merged[HINT]
    default = _default(merged, schema)
    if default is not None:
        schema["default"] = default
    return schema


def _merged(node: JSON, definitions: JSON) -> JSON:
    """``node`` with its reference and its optional half folded in; the outer description and default win."""
    outer = {key: value for key, value in node.items() if key not in ("$ref", "anyOf")}
    if "$ref" in node:
        return _merged(definitions[node["$ref"].rsplit("/", 1)[1]], definitions) | outer
    present = [option for option in node.get("anyOf", ()) if option.get("type") != "null"]
    if len(present) == 1:
        return _merged(present[0], definitions) | outer
    return outer


def _default(merged: JSON, schema: JSON) -> Any:
    default = merged.get("default")
    if "properties" in schema and isinstance(default, dict):
        children = schema["properties"].items()
        return {name: child["default"] for name, child in children if "default" in child} or None
    return None if default in ([], {}, "") else default


def _without_hints(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_hints(value) for key, value in node.items() if key != HINT}
    if isinstance(node, list):
        return [_without_hints(item) for item in node]
    return node
