"""How the scheduler hears and answers; the transport behind it is not its business."""

from __future__ import annotations

from typing import Protocol

from motley_engine.messages import ToScheduler, ToServer


class Mailbox(Protocol):
    """Messages in order, both ways."""

    def receive(self) -> list[ToScheduler]:
        """All messages that have arrived, without waiting."""
        ...

    def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds until a message is there; whether one is."""
        ...

    def send(self, message: ToServer) -> None:
        """Hand a message over without waiting."""
        ...
