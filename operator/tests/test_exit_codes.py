"""The operator's exit codes are the engine's."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from motley_operator.exit_codes import MEANINGS, ExitCode, describe

ENGINE = Path(__file__).parents[2] / "engine" / "motley_engine" / "launch" / "exit_codes.py"


def test_engine_and_operator_agree() -> None:
    # read, not imported: the operator's tests run without torch
    body = ast.parse(ENGINE.read_text(encoding="utf-8")).body
    targets = [(node.targets[0], node.value) for node in body if isinstance(node, ast.Assign)]
    engine = {target.id: ast.literal_eval(value) for target, value in targets if isinstance(target, ast.Name)}
    assert engine == {code.name: code.value for code in ExitCode}
    assert set(MEANINGS) == set(ExitCode)


@pytest.mark.parametrize(
    ("code", "text"),
    [(70, "exit code 70: a rank died"), (5, "exit code 5: the engine failed"), (-9, "killed by SIGKILL")],
)
def test_codes_are_told_in_words(code: int, text: str) -> None:
    assert describe(code) == text
