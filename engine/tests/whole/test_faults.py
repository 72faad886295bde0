"""kill -9 or SIGSTOP of any rank: clients hear of it within ten seconds and nothing is left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import httpx
import psutil
import pytest
from helpers.server import Server
from helpers.tiny import tiny_flags

from motley_engine.launch.exit_codes import RANK_DIED, RANK_STALLED

BOUND = 10.0
ENDLESS = {
    "input_ids": [500, 501, 502],
    "sampling_params": {"temperature": 0, "max_new_tokens": 1900, "ignore_eos": True},
}


def wait_gone(pids: list[int], deadline: float) -> list[int]:
    _, alive = psutil.wait_procs(
        [psutil.Process(p) for p in pids if psutil.pid_exists(p)], timeout=max(0.0, deadline - time.monotonic())
    )
    return [p.pid for p in alive if p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("fault", "code"), [(signal.SIGKILL, RANK_DIED), (signal.SIGSTOP, RANK_STALLED)])
def test_a_lost_rank_ends_the_replica_and_every_client_hears(
    tmp_path: Path, rank: int, fault: signal.Signals, code: int
):
    with Server([*tiny_flags(tmp_path), "--rank-tp-ratio", "2,1"]) as server:
        pids = server.rank_pids()
        family = [server.process.pid, *pids]
        flowing = threading.Event()
        outcomes: dict[str, str] = {}

        def stream() -> None:
            with server.http.stream("POST", "/generate", json=ENDLESS | {"stream": True}) as response:
                for line in response.iter_lines():
                    flowing.set()
                    if '"error"' in line:
                        outcomes["stream"] = line

        def plain() -> None:
            try:
                response = server.http.post("/generate", json=ENDLESS)
                outcomes["plain"] = f"{response.status_code} {response.text}"
            except httpx.TransportError as error:
                outcomes["plain"] = f"transport {error}"

        clients = [threading.Thread(target=t) for t in (stream, plain)]
        for client in clients:
            client.start()
        assert flowing.wait(60)
        struck = time.monotonic()
        os.kill(pids[rank], fault)
        for client in clients:
            client.join(BOUND)
            assert not client.is_alive(), "a client still waits"
        assert "error" in outcomes.get("stream", ""), outcomes
        assert outcomes["plain"].startswith("5"), outcomes
        assert server.process.wait(BOUND) == code
        assert wait_gone(family, struck + BOUND) == []


def test_killing_the_parent_leaves_no_orphan(tmp_path: Path):
    with Server([*tiny_flags(tmp_path), "--rank-tp-ratio", "2,1"]) as server:
        pids = server.rank_pids()
        os.kill(server.process.pid, signal.SIGKILL)
        assert wait_gone(pids, time.monotonic() + BOUND) == []
