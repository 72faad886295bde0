"""User errors become one clear message and exit code 2; everything else is a bug and keeps its traceback."""

from __future__ import annotations

from collections.abc import Callable

import typer

from motley_operator.api.document import InputError

USER_ERROR = 2


def exit_with(command: Callable[[], int]) -> None:
    """Run ``command`` and leave with the code it returns, or with 2 and its message for what the user can put right."""
    try:
        code = command()
    except InputError as error:
        typer.secho(f"motley: {error}", err=True, fg=typer.colors.RED)
        code = USER_ERROR
    raise typer.Exit(code)
