"""`motley up` as a process, from YAML to exit code, with a fake engine in place of `motley serve`."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from motley_operator.api.document import InputError
from motley_operator.local.kubelet import Machine, local_pods
from motley_operator.local.mounts import SecretStore
from motley_operator.local.terminal import Terminal
from motley_operator.local.up import UpOptions, up

from .golden import cases

JSON = dict[str, Any]
DEADLINE = 60.0
FAKE = Path(__file__).with_name("fake_engine.py")
RUN = """
import sys
from pathlib import Path
from rich.console import Console
from motley_operator.local.terminal import Terminal
from motley_operator.local.up import UpOptions, up
file, cpu, restart, fake, *secrets = sys.argv[1:]
options = UpOptions(Path(file), cpu, port=0, secrets=tuple(secrets), restart=restart == "restart",
                    entry_point=(sys.executable, fake))
sys.exit(up(options, Terminal(Console(width=200))))
"""


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 256}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 512}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **sizes, **heads, "rms_norm_eps": 1e-5}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def document(checkpoint: Path, name: str = "chat", **spec: Any) -> str:
    body = {
        "apiVersion": "motley.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {"model": {"uri": f"file://{checkpoint}"}, **spec},
    }
    return json.dumps(body) + "\n---\n"


class Running:
    """A `motley up` process and what it has printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def line(self, pattern: str) -> re.Match[str]:
        """The next line that matches; fails with the whole output when there is none."""
        assert self.process.stdout is not None
        while raw := await self.process.stdout.readline():
            self.lines.append(raw.decode().rstrip("\n"))
            if match := re.search(pattern, self.lines[-1]):
                return match
        raise AssertionError(f"no line matches {pattern!r} in:\n" + "\n".join(self.lines))

    async def end(self) -> int:
        """Exit code, after all output was read."""
        assert self.process.stdout is not None
        self.lines += (await self.process.stdout.read()).decode().splitlines()
        return await self.process.wait()


@asynccontextmanager
async def running(
    tmp_path: Path, text: str, cpu: str = "256,128", restart: str = "restart", secrets: tuple[str, ...] = ()
) -> AsyncIterator[Running]:
    file = tmp_path / "up.yaml"
    file.write_text(text)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", RUN, str(file), cpu, restart, str(FAKE), *secrets),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "HUB_TOKEN": "secret-token"},
    )
    try:
        async with asyncio.timeout(DEADLINE):
            yield Running(process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def get(url: str, path: str) -> int:
    address = url.removeprefix("http://").removesuffix("/v1")
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


async def crash(url: str) -> None:
    with suppress(http.client.HTTPException, OSError):
        await asyncio.to_thread(get, url, "/crash")


def gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_from_yaml_to_endpoint_to_drain(tmp_path: Path, checkpoint: Path) -> None:
    token = {"tokenSecretRef": {"name": "hub", "key": "token"}}
    text = document(checkpoint, model={"uri": f"file://{checkpoint}", "servedName": "tiny", **token})
    async with running(tmp_path, text, secrets=("hub/token=env:HUB_TOKEN",)) as motley:
        await motley.line("feasible: 2 ranks, query heads 3\\+1")
        given = json.loads((await motley.line(r"chat \| fake engine (.*)"))[1])
        saw = json.loads((await motley.line(r"chat \| saw (.*)"))[1])
        url = (await motley.line(r"OpenAI endpoint +(\S+) +\(model tiny\)"))[1]
        assert await asyncio.to_thread(get, url, "/health") == 200
        flags = dict(argument.partition("=")[::2] for argument in given[1:])
        assert given[0] == "serve"
        assert flags["--device"] == "cpu"
        assert flags["--host"] == "127.0.0.1"
        assert flags["--port"] == url.rsplit(":", 1)[1].removesuffix("/v1")
        assert flags["--model-path"] == f"file://{checkpoint}"
        assert flags["--group"] == "u0"
        assert not flags["--plan"].startswith("/etc/motley")
        assert saw["HF_TOKEN"] == "secret-token"
        assert saw["CUDA_VISIBLE_DEVICES"] == ""
        assert saw["HOME"] == str(Path.home())
        motley.process.send_signal(signal.SIGINT)
        await motley.line("draining")
        assert await motley.end() == 0
        assert "secret-token" not in "\n".join(motley.lines[:-1]).replace(json.dumps(saw), "")
        assert not Path(flags["--plan"]).exists()


async def test_a_second_ctrl_c_does_not_wait(tmp_path: Path, checkpoint: Path) -> None:
    async with running(tmp_path, document(checkpoint, engine={"extraArgs": ["--fake-slow"]})) as motley:
        pid = int((await motley.line("serving as (.*)"))[1])
        await motley.line("ready after")
        motley.process.send_signal(signal.SIGINT)
        await motley.line("draining")
        motley.process.send_signal(signal.SIGINT)
        await motley.line("ending at once")
        assert await motley.end() == 137
        assert gone(pid)


async def test_a_crash_is_restarted_and_serves_again(tmp_path: Path, checkpoint: Path) -> None:
    text = document(checkpoint, recovery={"backoffBaseSeconds": 1, "maxRestarts": 1})
    async with running(tmp_path, text) as motley:
        first = (await motley.line(r"OpenAI endpoint +(\S+)"))[1]
        await crash(first)
        await motley.line("exit code 70: a rank died; restart 1 in 1 s")
        url = (await motley.line(r"OpenAI endpoint +(\S+)"))[1]
        assert url == first
        await crash(url)
        await motley.line(r"restarted 1 times already \(spec.recovery.maxRestarts\)")
        assert await motley.end() == 70


async def test_without_restart_the_exit_code_is_passed_on(tmp_path: Path, checkpoint: Path) -> None:
    async with running(tmp_path, document(checkpoint), restart="no") as motley:
        await crash((await motley.line(r"OpenAI endpoint +(\S+)"))[1])
        assert await motley.end() == 70


@pytest.mark.parametrize(
    ("code", "reason"), [(2, "refused its configuration"), (78, "other GPUs"), (72, "never became")]
)
async def test_a_refused_start_passes_its_code_on(tmp_path: Path, checkpoint: Path, code: int, reason: str) -> None:
    async with running(tmp_path, document(checkpoint, engine={"extraArgs": [f"--fake-exit={code}"]})) as motley:
        await motley.line(reason)
        assert await motley.end() == code


async def test_nothing_is_left_behind(tmp_path: Path, checkpoint: Path) -> None:
    async with running(tmp_path, document(checkpoint, engine={"extraArgs": ["--fake-child"]})) as motley:
        child = int((await motley.line(r"child (\d+)"))[1])
        await motley.line("ready after")
        motley.process.send_signal(signal.SIGTERM)
        assert await motley.end() == 0
        assert gone(child)


async def test_several_objects_run_side_by_side_and_end_together(tmp_path: Path, checkpoint: Path) -> None:
    one_card = {"topology": {"maxGPUs": 1}}
    text = document(checkpoint, "chat", **one_card) + document(checkpoint, "code", **one_card)
    async with running(tmp_path, text) as motley:
        urls = {(await motley.line(r"(\w+) > +OpenAI endpoint +(\S+)")).groups() for _ in range(2)}
        assert {name for name, _ in urls} == {"chat", "code"}
        assert len({url for _, url in urls}) == 2
        motley.process.send_signal(signal.SIGTERM)
        assert await motley.end() == 0


def refused(tmp_path: Path, text: str, cpu: str = "256,128", **options: Any) -> str:
    file = tmp_path / "up.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        up(UpOptions(file, cpu, **options), Terminal(Console(quiet=True)))
    return str(caught.value)


def test_cards_are_not_shared_between_objects(tmp_path: Path, checkpoint: Path) -> None:
    text = document(checkpoint, "chat") + document(checkpoint, "code")
    assert refused(tmp_path, text).startswith("code: no card is left (held: CPU-0 by chat, CPU-1 by chat)")


def test_a_model_that_does_not_fit_says_what_would_help(tmp_path: Path, checkpoint: Path) -> None:
    message = refused(tmp_path, document(checkpoint), cpu="17,17")
    assert message.startswith("chat: group main does not fit its cards; it would with ")
    assert "MiB more for rank" in message


def test_a_port_that_another_program_holds_is_not_swapped_silently(tmp_path: Path, checkpoint: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        text = document(checkpoint, networking={"service": {"port": port}})
        assert f"chat: spec.networking.service.port: port {port} is in use" in refused(tmp_path, text)
        assert f"--port: port {port} is in use" in refused(tmp_path, document(checkpoint), port=port)


def test_missing_secrets_are_asked_for_before_anything_starts(tmp_path: Path, checkpoint: Path) -> None:
    text = document(checkpoint, networking={"apiKeySecretRef": {"name": "keys", "key": "chat"}})
    assert "--secret keys/chat=env:VARIABLE" in refused(tmp_path, text)


def test_pods_of_the_golden_manifests_are_understood(tmp_path: Path) -> None:
    secrets = SecretStore({("hub", "token"): "t", ("keys", "chat"): "k"})
    machine = Machine("here", tmp_path / "home", tmp_path / "pods", secrets, ("python", "-m", "motley"))
    (pod,) = local_pods(cases()["none-minimal.yaml"], machine)
    assert pod.command[:4] == ("python", "-m", "motley", "serve")
    assert f"--plan={tmp_path}/pods/{pod.name}/plan/plan.json" in pod.command
    assert pod.environment["HOME"] == str(tmp_path / "home")
    assert pod.timing.grace_seconds == 45
    assert pod.timing.startup.budget >= 600
    with pytest.raises(InputError, match="persistentVolumeClaim needs a cluster"):
        local_pods(cases()["runtime-class-everything.yaml"], machine)
