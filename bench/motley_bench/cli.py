"""The ``motley bench`` commands; each imports what it runs only when called."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

app = typer.Typer(help="Measure a running server, or a model shape with random weights.", no_args_is_help=True)

Scenarios = Annotated[str, typer.Option("--scenarios", help="Comma separated; all = every load shape.")]
Repeats = Annotated[int, typer.Option(min=1, help="Measured runs of each scenario; medians are printed.")]
Seed = Annotated[int, typer.Option(help="Seed of prompts and arrivals.")]
Timeout = Annotated[float, typer.Option(min=1, help="Seconds one request may take.")]
Scale = Annotated[float, typer.Option(min=0.01, help="Factor on the number of requests.")]
WarmUp = Annotated[bool, typer.Option(help="One unmeasured run of each scenario first.")]


def _names(scenarios: str) -> tuple[str, ...]:
    from motley_bench.scenarios import SCENARIOS

    names = tuple(SCENARIOS) if scenarios == "all" else tuple(s.strip() for s in scenarios.split(","))
    for name in names:
        if name not in SCENARIOS:
            raise typer.BadParameter(f"--scenarios: no scenario {name!r}; there are {', '.join(SCENARIOS)}")
    return names


@app.command()
def serve(
    target: Annotated[list[str], typer.Option(help="LABEL=URL, or LABEL=URL=openai; repeat to interleave servers.")],
    vocab_size: Annotated[int, typer.Option(min=100, help="Prompt ids are drawn below this.")],
    scenarios: Scenarios = "all",
    repeats: Repeats = 3,
    seed: Seed = 0,
    timeout: Timeout = 300.0,
    scale: Scale = 1.0,
    warm_up: WarmUp = True,
    model: Annotated[str, typer.Option(help="Model name for OpenAI targets.")] = "default",
) -> None:
    """Run load shapes against running servers, motley's or a peer's."""
    from motley_bench.serve import BenchOptions, main

    targets = []
    for text in target:
        label, _, rest = text.partition("=")
        url, _, api = rest.partition("=")
        if not url:
            raise typer.BadParameter(f"--target {text}: write LABEL=URL")
        targets.append((label, url.rstrip("/"), api or "generate"))
    options = BenchOptions(tuple(targets), _names(scenarios), repeats, seed, vocab_size, model, timeout, warm_up, scale)
    raise typer.Exit(main(options))


@app.command()
def shape(
    shape: Annotated[str, typer.Option("--shape", help="qwen3-0.6b, qwen3-8b or qwen3-32b.")],
    flags: Annotated[str, typer.Option(help="Flags of motley serve for the server under test, in one string.")] = "",
    reference: Annotated[
        str, typer.Option(help="Flags of the server whose logits are the truth; empty = no check.")
    ] = "",
    limit: Annotated[float, typer.Option(help="Largest RMS error ratio that counts as agreement.")] = 0.02,
    layers: Annotated[int | None, typer.Option(min=1, help="Fewer layers than the shape has.")] = None,
    scenarios: Annotated[str, typer.Option(help="Comma separated, all, or none for the check alone.")] = "none",
    repeats: Repeats = 1,
    seed: Seed = 0,
    timeout: Timeout = 300.0,
    scale: Scale = 1.0,
    warm_up: WarmUp = True,
) -> None:
    """Serve a shape with random weights; compare its logits with a reference; then run load shapes."""
    from motley_bench.serve import BenchOptions
    from motley_bench.shape_run import ShapeOptions, main

    load = None
    if scenarios != "none":
        load = BenchOptions((), _names(scenarios), repeats, seed, 0, "", timeout, warm_up, scale)
    options = ShapeOptions(shape, layers, tuple(shlex.split(flags)), tuple(shlex.split(reference)), limit, load)
    raise typer.Exit(main(options))
