"""`motley plan`: the planner's answer for objects or a bare model, as a table or as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from motley.console import stdout_console
from motley_operator.api.document import InputError
from motley_operator.planning.answer import PlanQuestion, plan_file, plan_model
from motley_planner.plan import Plan
from motley_planner.table import plan_table

INFEASIBLE = 1


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Command line of `motley plan`."""

    file: Path | None
    model: str | None
    cpu: str | None
    inventory: Path | None
    ratio: str | None
    context_length: int | None
    as_json: bool
    output: Path | None


def run(options: PlanOptions) -> int:
    """Print every plan. 0 when all fit, 1 when one does not. Raises InputError."""
    question = PlanQuestion(options.cpu, options.inventory, options.ratio, options.context_length)
    if (options.file is None) == (options.model is None):
        raise InputError("give either -f FILE with InferenceServices, or --model URI")
    if options.file is not None:
        plans = plan_file(options.file, question)
    else:
        assert options.model is not None
        plans = {options.model: plan_model(options.model, question)}
    feasible = all(plan.verdict == "feasible" for plan in plans.values())
    if options.output is not None and feasible:
        write(plans, options.output)
    show(plans, options.as_json)
    return 0 if feasible else INFEASIBLE


def write(plans: dict[str, Plan], output: Path) -> None:
    """Keep the only plan in a file for `motley serve --plan`. Raises InputError."""
    if len(plans) > 1:
        raise InputError(f"--output: takes one plan, and these objects have {len(plans)}: {', '.join(plans)}")
    (plan,) = plans.values()
    try:
        output.write_text(plan.to_json() + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"--output: {output} cannot be written: {error.strerror}") from error


def show(plans: dict[str, Plan], as_json: bool) -> None:
    """One JSON document per plan, or one table with its name above it."""
    if as_json:
        for plan in plans.values():
            typer.echo(plan.to_json())
        return
    console = stdout_console()
    for name, plan in plans.items():
        console.print(f"[bold]{name}[/]", soft_wrap=True)
        console.print(plan_table(plan))
