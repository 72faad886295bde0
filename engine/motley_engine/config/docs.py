"""The CLI and configuration reference, generated from the typed tree.

``python -m motley_engine.config.docs`` prints it, ``--write`` updates the committed files, ``--check`` fails if they
differ. Only the part between the markers is generated; the text around it is written by hand.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

from motley_engine.config.flags import Flag, all_flags

BEGIN = "<!-- begin generated: python -m motley_engine.config.docs --write -->"
END = "<!-- end generated -->"


def cli_reference() -> str:
    """Markdown tables of the flags of ``motley serve``, one per section of the tree."""
    return _tables("Flag", _flag_names)


def configuration_reference() -> str:
    """Markdown tables of the YAML keys, one per section of the tree."""
    return _tables("Key", lambda flag: f"`{flag.field}`")


PAGES: dict[str, Callable[[], str]] = {"docs/cli.md": cli_reference, "docs/configuration.md": configuration_reference}


def page(text: str, generated: str) -> str:
    """``text`` with the part between its markers replaced. ValueError if a marker is missing."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the markers {BEGIN!r} and {END!r} are missing")
    return f"{head}{BEGIN}\n\n{generated}\n{END}{tail}"


def _tables(first: str, name: Callable[[Flag], str]) -> str:
    return "\n".join(
        line
        for section, flags in groupby(all_flags(), key=lambda flag: flag.section)
        for line in _table(section, list(flags), first, name)
    )


def _table(section: str, flags: list[Flag], first: str, name: Callable[[Flag], str]) -> Iterator[str]:
    yield f"## {section.capitalize()}\n"
    yield f"| {first} | Value | Default | Meaning |"
    yield "|---|---|---|---|"
    for flag in flags:
        yield f"| {name(flag)} | {_value(flag)} | {_default(flag)} | {_cell(flag.help)} |"
    yield ""


def _flag_names(flag: Flag) -> str:
    names = (*flag.names, flag.off_name) if flag.off_name else flag.names
    return ", ".join(f"`{name}`" for name in names)


def _value(flag: Flag) -> str:
    kind = ", ".join(f"`{choice}`" for choice in flag.choices) or flag.kind.lower() or "on or off"
    return f"{kind}, {flag.bounds}" if flag.bounds else kind


def _default(flag: Flag) -> str:
    if flag.switch:
        return flag.default_text or "off"
    return f"`{flag.default_text}`" if flag.default_text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m motley_engine.config.docs", description=__doc__)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help="update the committed files")
    action.add_argument("--check", action="store_true", help="exit with 1 if a committed file is out of date")
    chosen = parser.parse_args(arguments)
    if not (chosen.write or chosen.check):
        print("\n".join(generate() for generate in PAGES.values()))
        return 0
    stale = [path for path, generate in PAGES.items() if _update(Path(path), generate(), chosen.write)]
    if stale and chosen.check:
        print(f"out of date: {', '.join(stale)}; run python -m motley_engine.config.docs --write", file=sys.stderr)
    return 1 if stale and chosen.check else 0


def _update(path: Path, generated: str, write: bool) -> bool:
    """Whether the file differed from what it should be; written if asked."""
    current = path.read_text(encoding="utf-8")
    wanted = page(current, generated)
    if write and current != wanted:
        path.write_text(wanted, encoding="utf-8")
    return current != wanted


if __name__ == "__main__":
    sys.exit(main())
