"""The scheduler's mailbox against plain sockets of the other side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from motley_engine.comm.mailbox import TO_SCHEDULER, TO_SERVER, Mailbox
from motley_engine.messages import Abort, Drain, Generate, Heartbeat, ToServer
from motley_engine.sampling.params import SamplingParams

DEADLINE_MS = 20_000


class Server:
    """The HTTP process's two sockets."""

    def __init__(self, folder: Path) -> None:
        self.context = zmq.Context()
        self.pull = self.context.socket(zmq.PULL)
        self.pull.bind(f"ipc://{folder / TO_SERVER}")
        self.push = self.context.socket(zmq.PUSH)
        self.push.connect(f"ipc://{folder / TO_SCHEDULER}")

    def close(self) -> None:
        self.context.destroy(linger=0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.close()


@pytest.fixture
def mailbox(tmp_path: Path) -> Iterator[Mailbox]:
    mailbox = Mailbox(tmp_path)
    yield mailbox
    mailbox.close()


def received(mailbox: Mailbox, count: int) -> list[object]:
    messages: list[object] = []
    while len(messages) < count:
        assert mailbox.wait(DEADLINE_MS / 1000)
        messages += mailbox.receive()
    return messages


def test_messages_arrive_in_order_and_whole(mailbox: Mailbox, server: Server):
    sent = [
        Generate(rid="a", input_ids=list(range(5000)), sampling=SamplingParams(logit_bias={3: -1.5}, seed=7)),
        Abort(rid="a"),
        Drain(),
    ]
    for message in sent:
        server.push.send(msgspec.msgpack.encode(message))
    assert received(mailbox, 3) == sent
    assert mailbox.receive() == []
    assert not mailbox.wait(0.0)


def test_a_malformed_message_is_dropped_and_named(mailbox: Mailbox, server: Server, caplog: pytest.LogCaptureFixture):
    for raw in (b"", b"\xc1", msgspec.msgpack.encode({"type": "Generate", "rid": 5})):
        server.push.send(raw)
    server.push.send(msgspec.msgpack.encode(Drain()))
    assert received(mailbox, 1) == [Drain()]
    assert caplog.text.count("dropped a malformed message") == 3


def test_messages_sent_before_the_server_binds_are_kept(mailbox: Mailbox, tmp_path: Path):
    mailbox.send(Heartbeat(steps=1))
    server = Server(tmp_path)
    assert server.pull.poll(DEADLINE_MS)
    assert msgspec.msgpack.decode(server.pull.recv(), type=ToServer) == Heartbeat(steps=1)
    server.close()
