"""Volumes, paths, environment, secrets, ports and processes of local pods."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from motley_operator.api.document import InputError
from motley_operator.local.environment import container_environment, expand, process_environment
from motley_operator.local.mounts import PathMap, SecretStore, lay_out_volumes, mounted_paths
from motley_operator.local.ports import free_port
from motley_operator.local.probe import Probe, look
from motley_operator.local.process import ChildProcess
from motley_operator.local.secrets import read_secrets

JSON = dict[str, Any]
DEADLINE = 20.0
NO_SECRETS = SecretStore({})
METADATA = {"name": "chat-0", "namespace": "team-a"}


def test_paths_are_translated_where_they_stand_for_themselves() -> None:
    paths = PathMap(
        (("/etc/motley", Path("/tmp/plan")), ("/etc/motley/keys", Path("/tmp/keys")), ("/home/motley", Path("/u")))
    )
    assert paths.local("--plan=/etc/motley/plan.json") == "--plan=/tmp/plan/plan.json"
    assert paths.local("--api-key=@/etc/motley/keys/chat") == "--api-key=@/tmp/keys/chat"
    assert paths.local("/home/motley") == "/u"
    assert paths.local("/etc/motley:/home/motley") == "/tmp/plan:/u"
    untouched = ["--plan=/srv/etc/motley/x", "/etc/motleys", "/etc/motley-old/x", "hf://etc/motley", "x/home/motley"]
    assert [paths.local(text) for text in untouched] == untouched
    assert PathMap(()).local("/etc/motley") == "/etc/motley"


def test_volumes_become_directories_with_their_contents(tmp_path: Path) -> None:
    spec: JSON = {
        "volumes": [
            {"name": "plan", "configMap": {"name": "p"}},
            {"name": "cache", "emptyDir": {}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "node", "hostPath": {"path": "/models"}},
            {"name": "key", "secret": {"secretName": "s", "items": [{"key": "k", "path": "as"}]}},
        ]
    }
    secrets = SecretStore({("s", "k"): "value"})
    config_maps = {"p": {"data": {"plan.json": "{}"}}}
    found = lay_out_volumes(spec, config_maps, secrets, tmp_path / "pod", {"cache": tmp_path / "kept"})
    assert (found["plan"] / "plan.json").read_text() == "{}"
    assert found["cache"] == tmp_path / "kept"
    assert list(found["scratch"].iterdir()) == []
    assert "shm" not in found
    assert found["node"] == Path("/models")
    assert (found["key"] / "as").read_text() == "value"
    assert (found["key"] / "as").stat().st_mode & 0o777 == 0o600
    mounts = {"volumeMounts": [{"name": "plan", "mountPath": "/p", "subPath": "x"}, {"name": "shm", "mountPath": "/s"}]}
    assert mounted_paths(mounts, found) == (("/p", found["plan"] / "x"),)


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"persistentVolumeClaim": {"claimName": "c"}}, "volume v: persistentVolumeClaim needs a cluster"),
        ({"configMap": {"name": "other"}}, "ConfigMap other: not part of the service"),
        (
            {"secret": {"secretName": "s", "items": [{"key": "k", "path": "k"}]}},
            "Secret s, key k: not known on this machine; give --secret s/k=env:VARIABLE",
        ),
    ],
)
def test_volumes_that_need_more_say_what(tmp_path: Path, volume: JSON, message: str) -> None:
    with pytest.raises(InputError, match=message):
        lay_out_volumes({"volumes": [{"name": "v", **volume}]}, {}, NO_SECRETS, tmp_path / "pod", {})


def test_variables_are_resolved_in_order() -> None:
    container = {
        "env": [
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "URL", "value": "http://$(IP)/$(POD)/$(LATER)/$$(IP)"},
            {"name": "LATER", "value": "x"},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "mode"}}},
            {"name": "EMPTY"},
        ]
    }
    secrets = SecretStore({("s", "k"): "$(POD)"})
    variables = container_environment(container, METADATA, "here", {"c": {"data": {"mode": "fast"}}}, secrets)
    assert variables["URL"] == "http://127.0.0.1/chat-0/$(LATER)/$(IP)"
    assert variables["TOKEN"] == "$(POD)"
    assert variables["MODE"] == "fast"
    assert variables["EMPTY"] == ""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"fieldRef": {"fieldPath": "spec.hostname"}}, "environment variable X: fieldPath spec.hostname is not known"),
        ({"configMapKeyRef": {"name": "c", "key": "k"}}, "environment variable X: ConfigMap c, key k is not on this"),
        ({"secretKeyRef": {"name": "s", "key": "k"}}, "Secret s, key k: not known on this machine"),
    ],
)
def test_references_that_lead_nowhere_are_named(source: JSON, message: str) -> None:
    with pytest.raises(InputError, match=message):
        container_environment({"env": [{"name": "X", "valueFrom": source}]}, METADATA, "here", {}, NO_SECRETS)


def test_the_runtime_shows_exactly_the_granted_cards() -> None:
    paths = PathMap((("/home/motley", Path("/u")),))
    shown = process_environment({"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b", "HOME": "/home/motley"}, paths)
    assert (shown["CUDA_VISIBLE_DEVICES"], shown["HOME"]) == ("GPU-a,GPU-b", "/u")
    assert process_environment({"NVIDIA_VISIBLE_DEVICES": "void"}, paths)["CUDA_VISIBLE_DEVICES"] == ""
    assert shown["PATH"] == os.environ["PATH"]


def test_expansion_leaves_unknown_names() -> None:
    assert expand("$(A)-$(B)-$A-$$(A)", {"A": "1"}) == "1-$(B)-$A-$(A)"


def test_secrets_are_read_from_variables_and_files(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from file\n")
    store = read_secrets(["a/x=env:KEY", f"b/y=file:{file}"], {"KEY": "from env"})
    assert store.value("a", "x") == "from env"
    assert store.value("b", "y") == "from file"
    assert store.keys("a") == ["x"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("a", "--secret: 'a' must be written NAME/KEY=env:VARIABLE or NAME/KEY=file:PATH"),
        ("a=env:KEY", "--secret: 'a' must be written"),
        ("a/=env:KEY", "must be written"),
        ("a/x=hunter2", "--secret a/x: write NAME/KEY=env:VARIABLE or NAME/KEY=file:PATH; the value itself does not"),
        ("a/x=env:ABSENT", "--secret a/x: environment variable ABSENT is not set"),
        ("a/x=env:", r"environment variable \(no name\) is not set"),
        ("a/x=file:/nowhere/at/all", "--secret a/x: /nowhere/at/all cannot be read"),
    ],
)
def test_faulty_secrets_are_refused_without_showing_them(entry: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_secrets([entry], {"KEY": "v"})
    assert "hunter2" not in str(caught.value)


def test_secrets_given_twice_or_empty_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--secret: a/x is given twice"):
        read_secrets(["a/x=env:KEY", "a/x=env:KEY"], {"KEY": "v"})
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InputError, match="is empty"):
        read_secrets([f"a/x=file:{tmp_path / 'empty'}"])


def test_a_port_in_use_is_refused_and_our_own_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(InputError, match=f"spec.x: port {port} is in use on this machine; .* --port 0"):
            free_port(port, "spec.x")
    assert free_port(0, "--port") > 0
    # which ports happen to be free here does not matter for the second half
    monkeypatch.setattr("motley_operator.local.ports._bindable", lambda port: True)
    assert free_port(8080, "--port", taken={8080, 8081}) == 8082


async def run_child(code: str, *arguments: str, actions: tuple[str, ...] = ()) -> tuple[int, list[str]]:
    """Exit code and lines of a child; ``actions`` are called once it has printed its first line."""
    lines: list[str] = []
    spoke = asyncio.Event()

    def sink(line: str) -> None:
        lines.append(line)
        spoke.set()

    async with asyncio.timeout(DEADLINE):
        child = await ChildProcess.start([sys.executable, "-c", code, *arguments], os.environ, sink)
        waiting = asyncio.create_task(child.wait())
        if actions:
            await spoke.wait()
        for action in actions:
            getattr(child, action)()
        return await waiting, lines


async def test_a_child_gives_lines_and_its_exit_code() -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.stdout.write('a\\rb\\r\\nlast'); sys.exit(7)"
    result, lines = await run_child(code)
    assert result == 7
    assert sorted(lines) == ["a", "b", "err", "last", "out"]


async def test_very_long_and_undecodable_lines_get_through() -> None:
    code = "import sys; sys.stdout.buffer.write(b'x' * 200000 + b'\\n\\xff\\n')"
    result, lines = await run_child(code)
    assert result == 0
    assert [len(line) for line in lines] == [200_000, 1]


async def test_a_child_can_be_asked_and_made_to_end() -> None:
    speak = "print('up', flush=True); signal.pause(); signal.pause()"
    polite = f"import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); {speak}"
    assert (await run_child(polite, actions=("terminate",)))[0] == 5
    stubborn = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {speak}"
    assert (await run_child(stubborn, actions=("terminate", "kill")))[0] == -signal.SIGKILL


async def test_what_a_container_started_ends_with_it() -> None:
    code = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']);"
        "print(child.pid, flush=True)"
    )
    _, lines = await run_child(code)
    await gone(int(lines[0]))


async def test_a_child_does_not_outlive_its_killed_parent() -> None:
    parent = (
        "import os, sys, subprocess\n"
        "command = [sys.executable, '-m', 'motley_operator.local.child', str(os.getpid()), sys.executable, '-c',"
        " 'import os, signal; print(os.getpid(), flush=True); signal.pause()']\n"
        "child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)\n"
        "print(child.stdout.readline().decode(), end='', flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", parent, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE):
        pid = int(await process.stdout.readline())
        assert await process.wait() == -signal.SIGKILL
    await gone(pid)


async def gone(pid: int) -> None:
    """Wait until process ``pid`` has ended (a zombie counts), or fail at the deadline."""
    async with asyncio.timeout(DEADLINE):
        while alive(pid):
            await asyncio.sleep(0)


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def answered(status: int, body: bytes = b"") -> str:
    """What a probe sees of a server that answers with ``status``."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        finding = await look("127.0.0.1", port, Probe("/health", 1, 5, 3))
        return f"{finding.ok} {finding.seen}"


async def test_probes_judge_by_status() -> None:
    assert await answered(200) == "True HTTP 200"
    assert await answered(503, b"loading weights") == "False HTTP 503 loading weights"
    finding = await look("127.0.0.1", free_port(0, "--port"), Probe("/health", 1, 5, 3))
    assert (finding.ok, finding.seen) == (False, "not listening yet")
