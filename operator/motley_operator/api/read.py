"""YAML documents -> validated InferenceServices. Every fault names the file, the object and the path of the field."""

from __future__ import annotations

import difflib
import json
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from motley_operator.api.document import InputError, parse_documents, read_text
from motley_operator.api.inferenceservice import API_VERSION, GROUP, KIND, InferenceService
from motley_operator.api.rules import Fault, broken_rules
from motley_operator.api.schema import HINT, described_schema

MAX_SHOWN = 80


class InvalidObjectError(InputError):
    """An object that breaks its schema or rules; ``faults`` has every one of them."""

    def __init__(self, place: str, faults: list[Fault]) -> None:
        self.faults = tuple(faults)
        lines = [f"{place}: {faults[0]}"] if len(faults) == 1 else [f"{place}:", *(f"  {fault}" for fault in faults)]
        super().__init__("\n".join(lines))


def read_services(path: Path) -> list[InferenceService]:
    """The InferenceServices of a file, in order, each valid. Raises InputError (or its InvalidObjectError)."""
    return parse_services(read_text(path), str(path))


def parse_services(text: str, source: str) -> list[InferenceService]:
    """Like ``read_services`` for text; ``source`` names it in messages."""
    documents = parse_documents(text, source)
    if not documents:
        raise InputError(f"{source}: is empty; it needs at least one {KIND}")
    services: list[InferenceService] = []
    seen: set[tuple[str, str]] = set()
    for number, document in enumerate(documents, 1):
        place = _place(document, source, number, len(documents))
        service = parse_service(document, place)
        key = (service.metadata.namespace, service.metadata.name)
        if key in seen:
            raise InputError(f"{place}: another object of the file has the same name; rename one of them")
        seen.add(key)
        services.append(service)
    return services


def parse_service(document: dict[str, Any], place: str) -> InferenceService:
    """Validate one plain object. Raises InvalidObjectError with every fault found."""
    _require_kind(document, place)
    try:
        service = InferenceService.model_validate_json(json.dumps(document))
    except ValidationError as error:
        raise InvalidObjectError(place, _faults(error)) from error
    faults = [*_duplicates(document, _schema(), ""), *broken_rules(service)]
    if faults:
        raise InvalidObjectError(place, faults)
    return service


def _place(document: dict[str, Any], source: str, number: int, total: int) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if isinstance(name, str):
        return f"{source}, {name}"
    return source if total == 1 else f"{source}, document {number}"


def _require_kind(document: dict[str, Any], place: str) -> None:
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind != KIND:
        found = "is missing" if kind is None else f"is {_shown(kind)}"
        raise InvalidObjectError(place, [Fault("kind", f"{found}; motley up runs {KIND} of {API_VERSION}")])
    if version != API_VERSION:
        found = "is missing" if version is None else f"is {_shown(version)}"
        other = isinstance(version, str) and not version.startswith(f"{GROUP}/")
        why = "; other projects use the same kind name" if other else ""
        raise InvalidObjectError(place, [Fault("apiVersion", f"{found}, expected {API_VERSION}{why}")])


@cache
def _schema() -> dict[str, Any]:
    return described_schema(InferenceService)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _path(steps: tuple[int | str, ...]) -> str:
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def _schema_at(steps: tuple[int | str, ...]) -> dict[str, Any]:
    node = _schema()
    for step in steps:
        if isinstance(step, int):
            node = node.get("items", {})
        else:
            node = node.get("properties", {}).get(step) or node.get("additionalProperties", {})
    return node


_PLAIN_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


_BOUNDS = {
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "needs at least {min_length} characters",
    "string_too_long": "may have at most {max_length} characters",
    "too_short": "needs at least {min_length} entries",
    "too_long": "may have at most {max_length} entries",
}


def _faults(error: ValidationError) -> list[Fault]:
    details = error.errors()
    located = [(tuple(step for step in detail["loc"] if step != "[key]"), detail) for detail in details]
    # a list whose items are faulty is also reported as too short, which would only mislead
    return [
        Fault(_path(steps), _explanation(detail, steps))
        for steps, detail in located
        if detail["type"] != "too_short"
        or not any(len(other) > len(steps) and other[: len(steps)] == steps for other, _ in located)
    ]


def _explanation(detail: ErrorDetails, steps: tuple[int | str, ...]) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return _unknown(str(steps[-1]), _schema_at(steps[:-1]))
    if value is None:
        return "has no value; give one or remove the field"
    if kind in _PLAIN_TYPES:
        quote = "; put it in quotes" if kind == "string_type" and isinstance(value, int | float) else ""
        return f"must be {_PLAIN_TYPES[kind]}, found {_shown(value)}{quote}"
    if kind == "literal_error":
        choices = _schema_at(steps).get("enum", [])
        return f"must be one of {', '.join(choices)}; found {_shown(value)}{_nearest(str(value), choices)}"
    if kind == "string_pattern_mismatch":
        wanted = _schema_at(steps).get(HINT, f"text that matches {context.get('pattern')}")
        return f"must be {wanted}; found {_shown(value)}"
    if kind == "value_error":
        return f"must be {_schema_at(steps).get(HINT, detail['msg'])}; found {_shown(value)}"
    if kind in _BOUNDS:
        return f"{_BOUNDS[kind].format(**context)}; found {_shown(value)}"
    return f"{detail['msg']}; found {_shown(value)}"


def _nearest(given: str, known: list[str]) -> str:
    folded = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(given.casefold(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[close[0]]}?" if close else ""


def _unknown(field: str, parent: dict[str, Any]) -> str:
    known = list(parent.get("properties", {}))
    nearest = _nearest(field, known)
    return f"unknown field{nearest}" if nearest else f"unknown field; known here: {', '.join(known) or 'none'}"


def _duplicates(value: Any, schema: dict[str, Any], path: str) -> list[Fault]:
    """Items of list maps with equal keys and repeated values of sets: what the API server would refuse."""
    if isinstance(value, dict):
        children = schema.get("properties", {})
        named = [(key, child) for key, child in value.items() if key in children]
        return [
            fault
            for key, child in named
            for fault in _duplicates(child, children[key], f"{path}.{key}" if path else key)
        ]
    if not isinstance(value, list):
        return []
    faults = [
        fault
        for index, item in enumerate(value)
        for fault in _duplicates(item, schema.get("items", {}), f"{path}[{index}]")
    ]
    return [*faults, *_repeated(value, schema, path)]


def _repeated(items: list[Any], schema: dict[str, Any], path: str) -> list[Fault]:
    kind = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys", [])
    if kind not in ("map", "set"):
        return []
    faults: list[Fault] = []
    first: dict[str, int] = {}
    for index, item in enumerate(items):
        identity = _shown([item.get(key) for key in keys]) if kind == "map" else _shown(item)
        if identity in first:
            what = f"the same {' and '.join(keys)} as" if kind == "map" else "the same value as"
            faults.append(Fault(f"{path}[{index}]", f"has {what} {path}[{first[identity]}]"))
        first.setdefault(identity, index)
    return faults
