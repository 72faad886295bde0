"""The serve command: flags by section, switches, aliases, exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from motley import serve
from motley_engine import launch
from motley_engine.config.flags import all_flags
from motley_engine.config.schema import EngineConfig


@pytest.fixture
def app() -> typer.Typer:
    found = typer.Typer()
    serve.register(found)

    @found.command()
    def other() -> None:
        """A second command, so that the first keeps its name."""

    return found


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[EngineConfig]:
    """The configurations that reached the engine."""
    configs: list[EngineConfig] = []

    def record(config: EngineConfig) -> int:
        configs.append(config)
        return 7

    monkeypatch.setattr(launch, "serve", record, raising=False)
    return configs


def test_help_lists_every_flag_by_section(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0
    assert all(name in result.output for flag in all_flags() for name in flag.names)
    sections = ["Model", "Parallel", "Memory", "Scheduler", "Server", "Runtime"]
    places = [result.output.index(f" {section} ") for section in sections]
    assert places == sorted(places)


def test_flags_reach_the_engine_and_its_code_comes_back(app: typer.Typer, served: list[EngineConfig]) -> None:
    flags = ["--model", "m", "--tp", "2", "--rank-tp-ratio", "2, 1", "--disable-radix-cache", "--no-enable-metrics"]
    result = CliRunner().invoke(app, ["serve", *flags])
    assert result.exit_code == 7
    (config,) = served
    assert (config.model.model_path, config.parallel.tp_size, config.parallel.rank_tp_ratio) == ("m", 2, "2, 1")
    assert (config.scheduler.disable_radix_cache, config.server.enable_metrics) == (True, False)
    assert config.scheduler.model_fields_set == {"disable_radix_cache"}


def test_faults_exit_with_2_before_the_engine_starts(
    app: typer.Typer, served: list[EngineConfig], tmp_path: Path
) -> None:
    settings = tmp_path / "engine.yaml"
    settings.write_text("tp-sze: 2\nprot: 1")
    result = CliRunner().invoke(app, ["serve", "--config", str(settings)])
    assert result.exit_code == 2
    assert "unknown key 'tp-sze'" in result.stderr
    assert "unknown key 'prot'" in result.stderr
    assert CliRunner().invoke(app, ["serve", "--port", "x"]).exit_code == 2
    assert not served
