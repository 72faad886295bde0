"""`motley demo` on the real models: the uneven plan, the fact, the speed, and a clean end."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("name", "heads"), [("smollm2", "6+3"), ("gemma3", "3+1")])
def test_a_demo_plans_unevenly_and_knows_the_capital_of_france(name: str, heads: str):
    done = subprocess.run(
        [sys.executable, "-m", "motley", "demo", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert f"2 ranks, query heads {heads}" in done.stdout
    answer = done.stdout.split("\nanswer ", 1)[1]
    assert "Paris" in answer.splitlines()[0]
    assert re.search(r"speed +\d+ tokens, first after \d+ ms, then [\d.]+ tokens/s", answer)
    assert "talk to it yourself" in answer
    assert "exit code 0: drained" in answer


def test_an_unknown_demo_names_those_there_are():
    done = subprocess.run([sys.executable, "-m", "motley", "demo", "x"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "smollm2, gemma3" in done.stderr
    assert "Traceback" not in done.stderr
