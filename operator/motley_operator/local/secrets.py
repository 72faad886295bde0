"""Secrets named on the command line: ``NAME/KEY=env:VARIABLE`` or ``NAME/KEY=file:PATH``, never the value itself."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from motley_operator.api.document import InputError
from motley_operator.local.mounts import SecretStore

FORM = "NAME/KEY=env:VARIABLE or NAME/KEY=file:PATH"


def read_secrets(entries: Iterable[str], environment: Mapping[str, str] = os.environ) -> SecretStore:
    """Values of every ``--secret``. Raises InputError naming the entry, without its value."""
    values: dict[tuple[str, str], str] = {}
    for entry in entries:
        target, separator, source = entry.partition("=")
        name, slash, key = target.partition("/")
        if not separator or not slash or not name or not key:
            raise InputError(f"--secret: {target!r} must be written {FORM}")
        if (name, key) in values:
            raise InputError(f"--secret: {target} is given twice; keep one of them")
        values[name, key] = _value(target, source, environment)
    return SecretStore(values)


def _value(target: str, source: str, environment: Mapping[str, str]) -> str:
    kind, _, place = source.partition(":")
    if kind == "env":
        if not environment.get(place):
            raise InputError(f"--secret {target}: environment variable {place or '(no name)'} is not set")
        return environment[place]
    if kind != "file":
        raise InputError(f"--secret {target}: write {FORM}; the value itself does not belong on a command line")
    try:
        # editors end files with a line break that is no part of the value
        value = Path(place).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--secret {target}: {place or '(no path)'} cannot be read: {error}") from error
    if not value:
        raise InputError(f"--secret {target}: {place} is empty")
    return value
