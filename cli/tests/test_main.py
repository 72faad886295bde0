"""The command line: what each mistake says, that no user error shows a traceback, and what commands import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from motley.main import app

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
HEAD = "apiVersion: motley.dev/v1alpha1\nkind: InferenceService\nmetadata: {name: chat}\n"

runner = CliRunner()


def run(*arguments: str) -> tuple[int, str, str]:
    result = runner.invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 256}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 512}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **sizes, **heads, "rms_norm_eps": 1e-5}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan",), "give either -f FILE with InferenceServices, or --model URI"),
        (("plan", "-f", "a", "--model", "b"), "give either -f FILE"),
        (("plan", "-f", "absent.yaml", "--cpu", "1"), "absent.yaml: cannot be read: No such file or directory"),
        (("plan", "--model", "absent", "--cpu", "1"), "absent: no such file or directory"),
        (("plan", "--model", "ftp://x/y", "--cpu", "1"), "ftp://x/y: unknown scheme ftp://"),
        (("plan", "--model", "x", "--cpu", "1,,2"), "--cpu: '' is not a budget"),
        (("plan", "--model", "x", "--cpu", "1", "--ratio", "a"), "--ratio: 'a' is not a share"),
        (("plan", "--model", "x", "--inventory", "absent.yaml"), "--inventory absent.yaml: cannot be read"),
        (("plan", "--model", "x", "--cpu", "1", "--inventory", "y"), "--cpu: excludes --inventory"),
        (("up", "-f", "absent.yaml"), "absent.yaml: cannot be read"),
        (("up", "-f", ".", "--cpu", "1"), ".: cannot be read: Is a directory"),
        (("up", "-f", "x", "--secret", "a=b"), "--secret: 'a' must be written NAME/KEY=env:VARIABLE"),
        (("up",), "Missing option"),
        (("up", "-f", "x", "--port", "70000"), "65535"),
        (("plan", "--cpus", "1"), "No such option"),
        (("fly",), "No such command"),
    ],
)
def test_mistakes_end_with_2_and_one_clear_message(arguments: tuple[str, ...], message: str) -> None:
    code, _, errors = run(*arguments)
    assert code == 2
    assert message in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "up.yaml: is empty"),
        ("kind: Pod", 'up.yaml: kind: is "Pod"; motley up runs InferenceService'),
        (HEAD + "spec: {model: {uri: 'hf://a/b'}, replica: 1}", "up.yaml, chat: spec.replica: unknown field; did you"),
        (HEAD + "spec: {model: {uri: 'hf://a/b'}, paused: true}", "chat: spec.paused: is true"),
        (
            HEAD + "spec: {model: {uri: 'hf://a/b'}, engine: {extraArgs: [--tp=2]}}",
            "chat: spec.engine.extraArgs[0]: --tp is decided by spec.topology",
        ),
        (HEAD + "spec: {model: {uri: 'package://absent/x.gguf'}}", "package://absent/x.gguf"),
        (HEAD + "spec: {model: {uri: 'pvc://claim/x'}}", "delivered by the cluster's volumes"),
    ],
)
def test_faulty_objects_are_refused_before_anything_runs(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "up.yaml"
    file.write_text(text)
    code, _, errors = run("up", "-f", str(file), "--cpu", "512")
    assert code == 2
    assert message in errors


def test_a_plan_is_shown_written_and_read_again(checkpoint: Path, tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    code, text, _ = run("plan", "--model", str(checkpoint), "--cpu", "256,128", "--output", str(output))
    assert code == 0
    assert "query heads 3+1" in text
    _, document, _ = run("plan", "--model", str(checkpoint), "--cpu", "256,128", "--json")
    assert json.loads(document) == json.loads(output.read_text())


def test_shares_can_be_given(checkpoint: Path) -> None:
    _, document, _ = run("plan", "--model", str(checkpoint), "--cpu", "256,256", "--ratio", "1,3", "--json")
    assert json.loads(document)["decision"]["replicas"][0]["stages"][0]["vectors"]["attn"] == [1, 3]


def test_a_plan_that_does_not_fit_ends_with_1_and_says_what_would(checkpoint: Path, tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    code, text, _ = run("plan", "--model", str(checkpoint), "--cpu", "17,17", "--output", str(output))
    assert code == 1
    assert "does not fit; each of these alone would do" in text
    assert not output.exists()


def test_version_names_motley_and_python() -> None:
    code, text, _ = run("version")
    assert code == 0
    assert text.startswith("motley ")
    assert sys.version.split()[0] in text


def test_help_lists_every_command() -> None:
    _, text, _ = run("--help")
    assert all(command in text for command in ("serve", "plan", "up", "bench", "version"))


@pytest.mark.parametrize("command", ["serve", "bench"])
def test_commands_with_flags_of_their_own_show_them(command: str) -> None:
    code, text, _ = run(command, "--help")
    assert code == 0
    assert f"Usage: motley {command}" in text


def test_planning_loads_neither_the_engine_nor_torch(checkpoint: Path) -> None:
    program = (
        "import sys\nfrom motley.main import app\n"
        f"app(['plan', '--model', {str(checkpoint)!r}, '--cpu', '256', '--json'], standalone_mode=False)\n"
        "print([name for name in ('torch', 'transformers', 'motley_engine', 'fastapi') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_module_runs_like_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "motley", "version"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert done.stdout.startswith("motley ")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_says_how_to_run_it_and_fits(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    lines = [line.lstrip("# ").rstrip("\\ ") for line in text.splitlines() if line.startswith("#")]
    (asked,) = [line for line in lines if f"motley up -f examples/{example.name} --cpu" in line]
    budgets = asked.split("--cpu", 1)[1].split()[0]
    code, shown, _ = run("plan", "-f", str(example), "--cpu", budgets, "--json")
    assert code == 0
    plan = json.loads(shown)
    assert plan["verdict"] == "feasible"
    assert len(plan["decision"]["replicas"][0]["stages"][0]["ranks"]) == len(budgets.split(","))


def test_examples_differ_in_name_and_port() -> None:
    objects = [yaml.safe_load(example.read_text(encoding="utf-8")) for example in EXAMPLES]
    assert len(EXAMPLES) >= 4
    assert len({item["metadata"]["name"] for item in objects}) == len(objects)
