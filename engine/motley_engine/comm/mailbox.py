"""Messages between the HTTP process and the scheduler: two one-way ZMQ pipes in a private directory, msgpack inside.

Each side binds the socket it reads, so either may start first. This is the scheduler's, synchronous end.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import zmq

from motley_engine.messages import ToScheduler, ToServer

log = logging.getLogger(__name__)

TO_SCHEDULER = "to_scheduler.sock"
TO_SERVER = "to_server.sock"
_LINGER_MS = 500


class Mailbox:
    """The scheduler's mailbox in ``directory`` (mode 0700; whoever may write there may speak to the scheduler)."""

    def __init__(self, directory: Path) -> None:
        self._context = zmq.Context()
        self._inbox = self._context.socket(zmq.PULL)
        self._inbox.set_hwm(0)
        self._inbox.bind(f"ipc://{directory / TO_SCHEDULER}")
        self._outbox = self._context.socket(zmq.PUSH)
        self._outbox.set_hwm(0)
        self._outbox.linger = _LINGER_MS
        self._outbox.connect(f"ipc://{directory / TO_SERVER}")
        self._decoder = msgspec.msgpack.Decoder(ToScheduler)
        self._encoder = msgspec.msgpack.Encoder()

    def receive(self) -> list[ToScheduler]:
        """All messages that have arrived, in order, without waiting. Malformed ones are logged and dropped."""
        messages: list[ToScheduler] = []
        while True:
            try:
                raw = self._inbox.recv(zmq.NOBLOCK)
            except zmq.Again:
                return messages
            try:
                messages.append(self._decoder.decode(raw))
            except msgspec.MsgspecError as error:
                log.warning("dropped a malformed message of %d bytes: %s", len(raw), error)

    def wait(self, timeout: float) -> bool:
        """Block at most ``timeout`` seconds; True as soon as a message is there."""
        return bool(self._inbox.poll(max(0, round(timeout * 1000))))

    def send(self, message: ToServer) -> None:
        """Queue one message to the HTTP process; never blocks."""
        self._outbox.send(self._encoder.encode(message), zmq.NOBLOCK)

    def close(self) -> None:
        """Deliver what is queued, waiting half a second at most, and free the sockets."""
        self._inbox.close(linger=0)
        self._outbox.close()
        self._context.term()
