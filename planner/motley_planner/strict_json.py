"""Dataclasses to canonical JSON and strictly back: unknown, missing and mistyped fields are named in the error."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

MAX_INTEGER = 2**63 - 1


class JsonError(ValueError):
    """Text or a value that is not what the type asks for. The text starts with the field's path."""


def canonical(value: Any) -> str:
    """JSON with sorted keys and no blanks, of dataclasses or plain JSON types: equal values give equal bytes."""
    return json.dumps(to_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def to_plain(value: Any) -> Any:
    """Nested dicts and lists for a dataclass, a mapping or a sequence; scalars as they are."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def parse(text: str) -> Any:
    """Plain JSON values. JsonError on bad syntax, duplicate keys, NaN and infinities."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except JsonError:
        raise
    except (ValueError, RecursionError) as error:
        raise JsonError(f"not valid JSON: {error}") from error


def decode(kind: type[T], value: Any, path: str = "") -> T:
    """``value`` (plain JSON) as ``kind``: dataclass, int, float, str, bool, Literal, tuple[X, ...], tuple of fixed
    length, Mapping[str, X] or a union with None. JsonError names the path of the first fault."""
    result: T = _decode(kind, value, path)
    return result


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise JsonError(f"{key}: given twice")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise JsonError(f"not valid JSON: {name} is no number")


def _decode(kind: Any, value: Any, path: str) -> Any:
    origin = get_origin(kind)
    if is_dataclass(kind):
        return _decode_fields(kind, value, path)
    if origin is Literal:
        return _expect(value in get_args(kind) and isinstance(value, str), value, path, f"one of {get_args(kind)}")
    if origin in (Union, types.UnionType):
        return _decode_optional(kind, value, path)
    if origin is tuple:
        return _decode_tuple(get_args(kind), value, path)
    if origin is not None and issubclass(origin, Mapping):
        _expect(isinstance(value, dict), value, path, "an object")
        return {key: _decode(get_args(kind)[1], item, f"{path}.{key}") for key, item in value.items()}
    if kind is int:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return _expect(whole and abs(value) <= MAX_INTEGER, value, path, "a 64-bit integer")
    if kind is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(_expect(number and abs(value) <= sys.float_info.max, value, path, "a finite number"))
    return _expect(isinstance(value, kind), value, path, {str: "a string", bool: "true or false"}[kind])


def _expect(holds: bool, value: Any, path: str, what: str) -> Any:
    if not holds:
        raise JsonError(f"{path or 'document'}: {_short(value)} is not {what}")
    return value


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _decode_optional(kind: Any, value: Any, path: str) -> Any:
    choices = [choice for choice in get_args(kind) if choice is not types.NoneType]
    return None if value is None else _decode(choices[0], value, path)


def _decode_tuple(kinds: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    _expect(isinstance(value, list), value, path, "a list")
    if kinds[-1] is not Ellipsis:
        _expect(len(value) == len(kinds), value, path, f"a list of {len(kinds)}")
        return tuple(_decode(kinds[index], item, f"{path}[{index}]") for index, item in enumerate(value))
    return tuple(_decode(kinds[0], item, f"{path}[{index}]") for index, item in enumerate(value))


def _decode_fields(kind: Any, value: Any, path: str) -> Any:
    _expect(isinstance(value, dict), value, path, "an object")
    known: dict[str, Field[Any]] = {item.name: item for item in fields(kind)}
    for name in value:
        if name not in known:
            raise JsonError(f"{_join(path, name)}: unknown field; known: {', '.join(known)}")
    hints = get_type_hints(kind)
    arguments = {}
    for name, item in known.items():
        if name in value:
            arguments[name] = _decode(hints[name], value[name], _join(path, name))
        elif item.default is MISSING and item.default_factory is MISSING:
            raise JsonError(f"{_join(path, name)}: missing")
    try:
        return kind(**arguments)
    except JsonError:
        raise
    except ValueError as error:
        raise JsonError(f"{path or 'document'}: {error}") from error


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
