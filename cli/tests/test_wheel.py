"""The wheel works outside the repository: packages, CRDs, charts and examples are inside, and the command runs."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    uv = Path(sysconfig.get_path("scripts")) / "uv"
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", out, ROOT], check=True, timeout=300)
    (wheel,) = out.glob("motley-*.whl")
    site = out / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def run(site: Path, *command: str) -> str:
    """Run with the wheel's packages in front; the working folder is not the repository."""
    env = {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=site.parent, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_carries_what_is_no_python(unpacked: Path):
    data = unpacked / "motley_operator" / "data"
    assert (data / "crds" / "motley.dev_inferenceservices.yaml").is_file()
    assert (data / "charts").is_dir()
    assert (data / "examples" / "quickstart.yaml").is_file()
    assert not list(unpacked.rglob("test_*.py"))


def test_the_command_plans_an_example_from_the_wheel(unpacked: Path):
    where = run(unpacked, "-c", "import motley_planner; print(motley_planner.__file__)")
    assert str(unpacked) in where
    example = unpacked / "motley_operator" / "data" / "examples" / "quickstart.yaml"
    assert "feasible" in run(unpacked, "-m", "motley", "plan", "-f", str(example), "--cpu", "1024,512", "--json")
