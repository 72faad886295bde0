"""Entry point."""

from __future__ import annotations


def main() -> None:
    raise SystemExit("motley: commands are being wired")
