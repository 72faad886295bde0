"""The one error that configuration raises."""

from __future__ import annotations

from collections.abc import Iterable


class ConfigError(ValueError):
    """One or more faults in flags, YAML, plan or model. Each message is ``FIELD: FAULT; FIX``. The CLI exits with 2."""

    exit_code = 2

    def __init__(self, *messages: str) -> None:
        super().__init__("\n".join(messages))
        self.messages = messages

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, ...]]:
        return type(self), self.messages


def raise_all(messages: Iterable[str]) -> None:
    """Raises a ConfigError with every message, or nothing if there is none."""
    found = tuple(messages)
    if found:
        raise ConfigError(*found)
