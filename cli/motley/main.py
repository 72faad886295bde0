"""The `motley` command. Every command imports what it needs when it runs, so that `motley plan` loads no engine."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from motley.errors import exit_with

app = typer.Typer(
    help="Serve large language models on GPUs that do not match.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# these bring their own flags, which are known only once their packages are imported
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

CpuOption = Annotated[
    str | None,
    typer.Option("--cpu", metavar="MIB[,MIB...]", help="Run on CPU: one pretend memory budget in MiB per rank."),
]
InventoryOption = Annotated[
    Path | None, typer.Option("--inventory", metavar="FILE", help="Cards described by hand, instead of NVML.")
]


@app.command("serve", context_settings=PASSED_ON, add_help_option=False)
def serve(context: typer.Context) -> None:
    """Serve one model over an OpenAI-compatible HTTP API."""
    from motley import serve as command

    inner = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    command.register(inner)
    inner(args=context.args, prog_name="motley serve")


@app.command("plan")
def plan(
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="YAML", help="InferenceServices to plan for.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="URI", help="Model to plan for, instead of an object.")
    ] = None,
    cpu: CpuOption = None,
    inventory: InventoryOption = None,
    ratio: Annotated[
        str | None,
        typer.Option("--ratio", metavar="auto|W[,W...]", help="Relative share of every rank; default: by memory."),
    ] = None,
    context_length: Annotated[
        int | None, typer.Option("--context-length", min=1, help="Longest sequence in tokens; with --model.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Also write the plan, for motley serve --plan.")
    ] = None,
) -> None:
    """Show how a model would be cut over the cards at hand."""
    from motley.plan import PlanOptions, run

    exit_with(lambda: run(PlanOptions(file, model, cpu, inventory, ratio, context_length, as_json, output)))


@app.command("up")
def up(
    file: Annotated[Path, typer.Option("-f", "--file", metavar="YAML", help="InferenceServices to run.")],
    cpu: CpuOption = None,
    inventory: InventoryOption = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Port on localhost, 0 for any; default: the object's own."),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option("--secret", metavar="NAME/KEY=env:VAR|file:PATH", help="A Secret's key; may be repeated."),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart/--no-restart", help="Restart a crashed pod as spec.recovery says.")
    ] = True,
) -> None:
    """Run InferenceServices on this machine, without a cluster."""
    from motley.console import stdout_console
    from motley_operator.local.terminal import Terminal
    from motley_operator.local.up import UpOptions
    from motley_operator.local.up import up as run

    options = UpOptions(file, cpu, inventory, port, tuple(secret or ()), restart)
    exit_with(lambda: run(options, Terminal(stdout_console())))


@app.command("demo")
def demo(
    name: Annotated[str, typer.Argument(help="smollm2 or gemma3.")] = "smollm2",
    keep: Annotated[bool, typer.Option("--keep", help="Stay up after the answer, until Ctrl-C.")] = False,
) -> None:
    """Run an example on two unequal pretend cards, ask it a question and show how to go on."""
    from motley.console import stdout_console
    from motley_operator.local.demo import demo as run

    exit_with(lambda: run(name, keep, stdout_console()))


@app.command("bench", context_settings=PASSED_ON, add_help_option=False)
def bench(context: typer.Context) -> None:
    """Measure a running server, or a model shape with random weights."""
    from motley_bench.cli import app as inner

    inner(args=context.args, prog_name="motley bench")


@app.command("version")
def show_version() -> None:
    """Print the versions of motley and Python."""
    try:
        installed = version("motley")
    except PackageNotFoundError:
        installed = "(not installed)"
    typer.echo(f"motley {installed}, Python {sys.version.split()[0]}")


def main() -> None:
    """Entry point of the `motley` script and of `python -m motley`."""
    app(prog_name="motley")
