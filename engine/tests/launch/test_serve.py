"""`motley serve` from start to end: drain, second signal, and refusals before anything is loaded."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import psutil
import pytest
from helpers.server import Server
from helpers.tiny import tiny_flags

from motley_engine.launch import exit_codes
from motley_engine.launch.http import bind, url_of

BOUND = 60.0


def stream(server: Server, tokens: int, flowing: threading.Event, lines: list[str]) -> None:
    body = {
        "input_ids": [5, 6, 7],
        "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True},
        "stream": True,
    }
    with server.http.stream("POST", "/generate", json=body) as response:
        for line in response.iter_lines():
            flowing.set()
            lines.append(line)


def streaming(server: Server, tokens: int) -> tuple[threading.Thread, list[str]]:
    """A client that reads a stream of ``tokens`` tokens, once its first event has come."""
    flowing, lines = threading.Event(), []
    client = threading.Thread(target=stream, args=(server, tokens, flowing, lines))
    client.start()
    assert flowing.wait(BOUND)
    return client, lines


def wait_for_line(server: Server, pattern: str) -> None:
    """Until the server has logged ``pattern``."""
    while not any(re.search(pattern, line) for line in server.log):
        line = server._lines.get(timeout=BOUND)
        assert line is not None, server.tail()


def test_sigterm_lets_open_requests_end_and_refuses_new_ones(tmp_path: Path):
    with Server(tiny_flags(tmp_path)) as server:
        pids = server.rank_pids()
        client, lines = streaming(server, 300)
        server.process.send_signal(signal.SIGTERM)
        wait_for_line(server, "draining")
        refused = httpx.post(f"{server.url}/generate", json={"input_ids": [1, 2]}, timeout=BOUND)
        assert refused.status_code == 503
        client.join(BOUND)
        assert lines[-2:] == ["data: [DONE]", ""] or lines[-1] == "data: [DONE]", lines[-3:]
        assert not any('"error"' in line for line in lines)
        assert server.process.wait(BOUND) == exit_codes.OK
        assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_second_signal_ends_at_once(tmp_path: Path):
    with Server(tiny_flags(tmp_path)) as server:
        pids = server.rank_pids()
        client, _ = streaming(server, 1900)
        server.process.send_signal(signal.SIGINT)
        wait_for_line(server, "draining")
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(BOUND) == exit_codes.INTERRUPTED
        client.join(BOUND)
        assert not client.is_alive()
        assert not any(psutil.pid_exists(pid) for pid in pids)


def run_serve(flags: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "motley", "serve", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=4 * BOUND, check=False)


def test_a_taken_port_is_refused_before_loading(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run_serve([*tiny_flags(tmp_path), "--port", str(port)])
    assert ended.returncode == exit_codes.CONFIG_REFUSED
    assert f"--host, --port: cannot bind 127.0.0.1:{port}" in ended.stderr
    assert "load" not in ended.stderr


def test_the_socket_is_bound_but_does_not_listen_yet():
    with bind("127.0.0.1", 0) as listener:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url_of(listener))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(listener.getsockname(), timeout=BOUND)


def test_a_signal_while_starting_ends_cleanly(tmp_path: Path):
    command = [sys.executable, "-m", "motley", "serve", "--port", "0", *tiny_flags(tmp_path)]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        # the plan is shown just before the ranks start
        seen = next(line for line in process.stderr if "feasible" in line)
        assert seen
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(BOUND) == exit_codes.INTERRUPTED, rest
    assert "stopped by SIGTERM" in rest
    assert list(tmp_path.glob("motley-*")) == []
