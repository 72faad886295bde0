"""YAML text -> plain JSON documents, with the traps closed: repeated keys, dates, alias bombs, odd keys, NaN."""

from __future__ import annotations

import math
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 1 << 20
MAX_NODES = 100_000
MAX_DEPTH = 100


class InputError(ValueError):
    """What the user gave cannot be used; the text names the place, the fault and the way out."""


class _Loader(yaml.SafeLoader):
    """Safe loader of the JSON part of YAML: dates stay text, repeated keys are errors."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    seen: dict[Hashable, int] = {}
    for key_node, _ in node.value:
        # a merge may be overridden, and that is no repetition
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        line = key_node.start_mark.line + 1
        if not isinstance(key, Hashable):
            raise InputError(f"line {line}: a key must be text")
        if key in seen:
            raise InputError(f"line {line}: key {key!r} is there already, on line {seen[key]}; keep one of them")
        seen[key] = line
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_text(path: Path) -> str:
    """Text of ``path``. Raises InputError when it cannot be read, is too large or is not UTF-8."""
    try:
        if path.is_file() and path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: larger than {MAX_BYTES} bytes; that is no object for motley")
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}); save the file as UTF-8") from error


def parse_documents(text: str, source: str) -> list[dict[str, Any]]:
    """The mappings of a multi-document YAML text, empty documents left out.

    ``source`` names the text in messages. Raises InputError when it is not YAML, or not mappings of plain JSON values.
    """
    try:
        loaded = list(yaml.load_all(text, Loader=_Loader))
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{source}: not YAML: {_where(error)}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not YAML: {error}") from error
    documents = [document for document in loaded if document is not None]
    for number, document in enumerate(documents, 1):
        place = source if len(documents) == 1 else f"{source}, document {number}"
        if not isinstance(document, dict):
            raise InputError(
                f"{place}: expected a mapping with apiVersion, kind, metadata and spec, found {_kind(document)}"
            )
        _require_json(document, place)
    return documents


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


def _kind(value: object) -> str:
    names = {str: "text", int: "a number", float: "a number", bool: "true or false", list: "a list", dict: "a mapping"}
    return names.get(type(value), type(value).__name__)


def _require_json(document: dict[str, Any], place: str) -> None:
    """Walk every value once per appearance, so that aliases cannot hide an explosion or a loop."""
    stack: list[tuple[str, Any, int]] = [("", document, 0)]
    visited = 0
    while stack:
        path, value, depth = stack.pop()
        visited += 1
        if visited > MAX_NODES or depth > MAX_DEPTH:
            raise InputError(f"{place}: too large once its aliases are written out, or nested too deeply")
        if isinstance(value, dict):
            for key, child in value.items():
                if not isinstance(key, str):
                    raise InputError(f"{place}: {path or 'top level'}: key {key!r} is not text; put it in quotes")
                stack.append((f"{path}.{key}" if path else key, child, depth + 1))
        elif isinstance(value, list):
            stack.extend((f"{path}[{index}]", child, depth + 1) for index, child in enumerate(value))
        elif isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{place}: {path}: {value} is not a number that JSON knows")
        elif value is not None and not isinstance(value, str | int | float | bool):
            raise InputError(f"{place}: {path}: a {type(value).__name__} has no place in an object; use text")
