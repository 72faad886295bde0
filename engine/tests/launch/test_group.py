"""Real rank processes: two over gloo answer like one, and a start that fails says why within its bound."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
import zmq
from executor.tiny import LLAMA, settle
from safetensors.torch import save_file

from motley_engine.comm.mailbox import TO_SCHEDULER, TO_SERVER
from motley_engine.config.resolve import Resolved
from motley_engine.launch import exit_codes
from motley_engine.launch.group import RankGroup, StartError
from motley_engine.messages import Batch, Generate, LogprobOptions, Shutdown, ToServer, Update
from motley_engine.sampling.params import SamplingParams

START = 240.0
ANSWER = 120.0


class Replica:
    """A started group and the HTTP process's end of its sockets."""

    def __init__(self, resolved: Resolved, folder: Path) -> None:
        self.group = RankGroup.start(resolved, folder)
        self.context = zmq.Context()
        self.pull = self.context.socket(zmq.PULL)
        self.pull.bind(f"ipc://{folder / TO_SERVER}")
        self.push = self.context.socket(zmq.PUSH)
        self.push.connect(f"ipc://{folder / TO_SCHEDULER}")

    def send(self, message: object) -> None:
        self.push.send(msgspec.msgpack.encode(message))

    def finished(self, count: int) -> dict[str, list[Update]]:
        """Updates by request until ``count`` have ended."""
        updates: dict[str, list[Update]] = {}
        ended, deadline = 0, time.monotonic() + ANSWER
        while ended < count:
            assert self.pull.poll(max(0.0, deadline - time.monotonic()) * 1000), f"{ended} of {count} ended"
            message = msgspec.msgpack.decode(self.pull.recv(), type=ToServer)
            for update in message.updates if isinstance(message, Batch) else ():
                updates.setdefault(update.rid, []).append(update)
                ended += update.finish is not None
        return updates

    def close(self) -> None:
        self.group.kill()
        self.context.destroy(linger=0)


@pytest.fixture
def folders() -> Iterator[list[Path]]:
    made = [Path(tempfile.mkdtemp(prefix="m")) for _ in range(2)]
    yield made
    for folder in made:
        shutil.rmtree(folder)


def requests() -> list[Generate]:
    rng = np.random.default_rng(0)
    return [
        Generate(
            rid=str(number),
            input_ids=rng.integers(3, 300, length).tolist(),
            sampling=SamplingParams(temperature=0, max_new_tokens=20),
            logprobs=LogprobOptions(top=5),
        )
        for number, length in enumerate((1, 3, 17, 60, 90, 7, 33, 5))
    ]


def test_two_processes_over_gloo_answer_like_one(tmp_path: Path, folders: list[Path]):
    cut = settle(tmp_path, LLAMA, "2,1", runtime={"cpu_collectives": "gloo", "debug_digest": True})
    replicas = [Replica(settle(tmp_path, LLAMA), folders[0]), Replica(cut, folders[1])]
    try:
        for replica in replicas:
            replica.group.wait_ready(START, lambda report: None)
            for request in requests():
                replica.send(request)
        one, two = (replica.finished(len(requests())) for replica in replicas)
        for rid, updates in one.items():
            ids = [token for update in updates for token in update.token_ids]
            assert ids == [token for update in two[rid] for token in update.token_ids]
            for mine, other in zip(_tops(updates), _tops(two[rid]), strict=True):
                np.testing.assert_allclose(mine, other, atol=1e-4)
        for replica in replicas:
            replica.send(Shutdown())
            assert replica.group.join(ANSWER)
            assert [rank.process.exitcode for rank in replica.group.ranks] == [0] * len(replica.group.ranks)
    finally:
        for replica in replicas:
            replica.close()


def _tops(updates: list[Update]) -> list[list[float]]:
    """The five best logprobs of every token."""
    return [[value for value, _ in entry.top] for update in updates for entry in update.logprobs or ()]


def start_error(resolved: Resolved, folder: Path, timeout: float = START, kill: bool = False) -> StartError:
    group = RankGroup.start(resolved, folder)
    try:
        if kill:
            group.ranks[0].process.kill()
        with pytest.raises(StartError) as caught:
            group.wait_ready(timeout, lambda report: None)
    finally:
        group.kill()
    assert not any(rank.alive for rank in group.ranks)
    return caught.value


def test_a_rank_killed_while_it_starts_fails_the_start(tmp_path: Path, folders: list[Path]):
    error = start_error(settle(tmp_path, LLAMA, "2,1"), folders[0], kill=True)
    assert error.code == exit_codes.START_FAILED
    assert "rank 0 (process" in str(error)
    assert "SIGKILL" in str(error)


def test_a_start_beyond_its_bound_fails(tmp_path: Path, folders: list[Path]):
    error = start_error(settle(tmp_path, LLAMA, "2,1"), folders[0], timeout=0.01)
    assert error.code == exit_codes.START_FAILED
    assert "rank 0, 1 not ready in time; raise --start-timeout" in str(error)


def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path: Path, folders: list[Path]):
    save_file({"model.norm.weight": torch.ones(48)}, tmp_path / "model.safetensors")
    resolved = settle(tmp_path, LLAMA)
    config = resolved.config.model_copy(
        update={"model": resolved.config.model.model_copy(update={"load_format": "safetensors"})}
    )
    source = dataclasses.replace(resolved.source, format="safetensors")
    error = start_error(dataclasses.replace(resolved, config=config, source=source), folders[0])
    assert error.code == exit_codes.CONFIG_REFUSED
    assert "the checkpoint lacks" in str(error)
