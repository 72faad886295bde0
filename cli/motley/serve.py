"""``motley serve``: one engine replica. Its flags are generated from the typed configuration tree."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from motley_engine.config.errors import ConfigError
from motley_engine.config.flags import Flag, all_flags, build_config

CONFIG_HELP = "YAML file with any of these settings (keys as the flags, without --); flags win over it."


def register(app: typer.Typer) -> None:
    """Adds the command to the CLI."""
    app.command(name="serve", help="Serve one model over an OpenAI-compatible HTTP API.")(_command())


def run(flags: dict[str, object], config: str = "") -> None:
    """Builds the configuration and runs the replica until it is told to stop.

    Exits with 2 and one line per fault if the configuration is wrong, else with the replica's own code.
    """
    try:
        settings = build_config(flags, config)
        from motley_engine.launch import serve

        code = serve(settings)
    except ConfigError as error:
        for message in error.messages:
            typer.secho(message, err=True, fg=typer.colors.RED)
        raise typer.Exit(error.exit_code) from None
    raise typer.Exit(code)


def _command() -> Callable[..., None]:
    def serve(**values: Any) -> None:
        run(values, values.pop("config") or "")

    parameters = [_parameter("config", Annotated[str, typer.Option("--config", help=CONFIG_HELP, metavar="FILE")], "")]
    parameters += [_parameter(flag.field, _annotation(flag), None) for flag in all_flags()]
    serve.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    serve.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return serve


def _parameter(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _annotation(flag: Flag) -> Any:
    """Values stay text here, and None means not given: the tree alone validates."""
    shared: dict[str, Any] = {
        "help": _help(flag),
        "rich_help_panel": flag.section.capitalize(),
        "show_default": False,
    }
    if flag.switch:
        names = f"{flag.name}/{flag.off_name}" if flag.off_name else flag.name
        return Annotated[bool | None, typer.Option(names, **shared)]
    return Annotated[str | None, typer.Option(*flag.names, metavar=flag.kind, **shared)]


def _help(flag: Flag) -> str:
    notes = [f"default: {flag.default_text}"] if flag.default_text and not flag.switch else []
    notes += [flag.bounds] if flag.bounds else []
    return f"{flag.help} [{'; '.join(notes)}]" if notes else flag.help
