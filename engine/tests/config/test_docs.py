"""The committed reference equals what the tree generates."""

from __future__ import annotations

from pathlib import Path

import pytest

from motley_engine.config.docs import BEGIN, END, PAGES, main, page
from motley_engine.config.flags import all_flags

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("path", PAGES)
def test_committed_pages_are_up_to_date(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    assert text == page(text, PAGES[path]()), "run python -m motley_engine.config.docs --write"


def test_every_flag_and_key_is_described() -> None:
    cli, configuration = (generate() for generate in PAGES.values())
    for flag in all_flags():
        assert all(f"`{name}`" in cli for name in flag.names)
        assert f"| `{flag.field}` |" in configuration


def test_only_the_part_between_the_markers_changes() -> None:
    assert page(f"head\n{BEGIN}old{END}\ntail", "new") == f"head\n{BEGIN}\n\nnew\n{END}\ntail"
    with pytest.raises(ValueError, match="are missing"):
        page("no markers", "new")


def test_check_fails_on_a_stale_page_until_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    for path in PAGES:
        Path(path).write_text(f"{BEGIN}{END}")
    assert main(["--check"]) == 1
    assert main(["--write"]) == 0
    assert main(["--check"]) == 0
