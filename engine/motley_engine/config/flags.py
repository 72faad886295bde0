"""Flags, YAML and defaults made into one EngineConfig. Names, types and help come from the tree in ``schema``.

Precedence: flags, then the YAML file, then defaults. This module knows nothing of conflicts between fields.
"""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from motley_engine.config.errors import ConfigError, raise_all
from motley_engine.config.schema import EngineConfig

ALIASES: dict[str, tuple[str, ...]] = {
    "model_path": ("--model",),
    "tp_size": ("--tp",),
    "tokenizer_path": ("--tokenizer",),
}
"""Short spellings that SGLang users know."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One field of the tree as the user sees it.

    ``switch``: a plain switch without value. ``items``: comma-separated. ``choices``: the allowed words, if fixed.
    ``kind`` is the word for the value in help and docs (INT, NUMBER, TEXT, LIST, or '' for switches).
    """

    section: str
    field: str
    kind: str
    default: object
    help: str
    choices: tuple[str, ...] = ()
    bounds: str = ""
    secret: bool = False

    @property
    def name(self) -> str:
        return "--" + self.field.replace("_", "-")

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *ALIASES.get(self.field, ()))

    @property
    def switch(self) -> bool:
        return not self.kind

    @property
    def off_name(self) -> str:
        """The switch that turns off a field that is on by default; '' for all others."""
        return "--no-" + self.name[2:] if self.switch and self.default is True else ""

    @property
    def default_text(self) -> str:
        if self.default is None or self.default == "" or self.default == ():
            return ""
        if self.switch:
            return "on" if self.default else ""
        return str(self.default)


@cache
def all_flags() -> tuple[Flag, ...]:
    """Every field of EngineConfig, in the order of the tree."""
    return tuple(
        _flag(section, name, field)
        for section, part in EngineConfig.model_fields.items()
        for name, field in _section_type(part).model_fields.items()
    )


def build_config(flags: Mapping[str, object], yaml_path: str = "") -> EngineConfig:
    """The tree from given flags (field name -> value; None = not given) over the YAML file's keys over defaults.

    Raises ConfigError naming every unknown key and every value of the wrong type.
    """
    values = load_yaml(Path(yaml_path)) if yaml_path else {}
    values.update({name: value for name, value in flags.items() if value is not None})
    by_field = {flag.field: flag for flag in all_flags()}
    tree: dict[str, dict[str, object]] = {}
    faults: list[str] = []
    for name, value in values.items():
        flag = by_field[name]
        try:
            tree.setdefault(flag.section, {})[name] = _normalise(flag, value)
        except ConfigError as error:
            faults += error.messages
    raise_all(faults)
    try:
        return EngineConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(*(_explain(detail, by_field) for detail in error.errors())) from None


def load_yaml(path: Path) -> dict[str, object]:
    """Field name -> value of a YAML file; dashes and underscores in keys are the same.

    Raises ConfigError for an unreadable file, anything but a mapping, unknown keys and keys given twice.
    """
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
    except OSError as error:
        raise ConfigError(f"--config: cannot read {path}: {error.strerror}; give the path of a YAML file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config: {path} is not valid YAML: {error}; correct the file") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"--config: {path} holds a {type(document).__name__}; write one 'key: value' per line")
    return _known_fields(document, path)


def _known_fields(document: dict[Any, object], path: Path) -> dict[str, object]:
    fields = {flag.field for flag in all_flags()}
    found: dict[str, object] = {}
    faults = []
    for key, value in document.items():
        name = str(key).replace("-", "_")
        if name not in fields:
            faults.append(f"--config: {path}: unknown key {str(key)!r}; {_suggest(name, fields)}")
        elif name in found:
            faults.append(f"--config: {path}: key {name!r} is given twice; keep one of them")
        found[name] = value
    raise_all(faults)
    return found


def _suggest(name: str, fields: set[str]) -> str:
    near = difflib.get_close_matches(name, sorted(fields), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else "see docs/configuration.md for all keys"


class _UniqueKeyLoader(yaml.SafeLoader):
    """PyYAML keeps the last of two equal keys without a word; a configuration file must not."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = str(self.construct_object(key_node, deep=True))
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _section_type(field: FieldInfo) -> type[BaseModel]:
    section = field.annotation
    assert isinstance(section, type)
    assert issubclass(section, BaseModel)
    return section


def _flag(section: str, name: str, field: FieldInfo) -> Flag:
    kind, choices = _kind(field.annotation)
    extra = field.json_schema_extra
    return Flag(
        section=section,
        field=name,
        kind=kind,
        default=field.default,
        help=field.description or "",
        choices=choices,
        bounds=_bounds(field),
        secret=isinstance(extra, dict) and bool(extra.get("secret")),
    )


def _kind(annotation: Any) -> tuple[str, tuple[str, ...]]:
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        inner = [part for part in get_args(annotation) if part is not type(None)]
        return _kind(inner[0])
    if origin is Literal:
        choices = tuple(str(choice) for choice in get_args(annotation))
        return "|".join(choices), choices
    if origin is tuple:
        return "LIST", ()
    return {bool: "", int: "INT", float: "NUMBER"}.get(annotation, "TEXT"), ()


def _bounds(field: FieldInfo) -> str:
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    parts = [
        f"{word} {getattr(rule, key)}" for rule in field.metadata for key, word in words.items() if hasattr(rule, key)
    ]
    return ", ".join(parts)


def _normalise(flag: Flag, value: object) -> object:
    """What YAML or a flag gave, in the form the tree's type takes."""
    if value is None:
        return flag.default
    if flag.kind == "LIST":
        return split_items(flag.name, value)
    if flag.kind == "TEXT":
        return _as_text(value)
    return value.strip() if isinstance(value, str) else value


def _as_text(value: object) -> object:
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def split_items(flag: str, value: object) -> tuple[str, ...]:
    """Items of a comma-separated list without the blanks around them; a YAML list is taken as it is.

    Raises ConfigError for an empty item.
    """
    raw = value if isinstance(value, list | tuple) else str(value).split(",")
    items = tuple(str(item).strip() for item in raw)
    for position, item in enumerate(items):
        if not item:
            raise ConfigError(f"{flag}: item {position + 1} of {value!r} is empty; give one item per rank")
    return items


def _explain(detail: Any, by_field: Mapping[str, Flag]) -> str:
    """One pydantic fault as FLAG: FAULT; FIX."""
    location = [str(part) for part in detail["loc"]]
    flag = by_field[location[1]]
    item = f"item {int(location[2]) + 1}: " if len(location) > 2 else ""
    given = "(secret)" if flag.secret else repr(detail["input"])
    fault = detail["msg"][0].lower() + detail["msg"][1:]
    allowed = flag.kind or "true or false"
    return f"{flag.name}: {item}{given}: {fault}; allowed: {allowed}{', ' + flag.bounds if flag.bounds else ''}"
