"""The queue between the engine client and one HTTP request. Lives in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from motley_engine.messages import Update
from motley_engine.server.errors import ClientGoneError


class Subscription:
    """The updates of one HTTP request's sequences, in the order they came, each with the sequence's index.

    ``names`` holds the name by which the client knows each sequence; several may share one.
    """

    def __init__(self, names: Sequence[str], rids: Sequence[str]) -> None:
        self.names = names
        self.rids = rids
        self._updates: list[tuple[int, Update]] = []
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def next(self) -> list[tuple[int, Update]]:
        """Everything that came since the last call; waits for at least one update.

        Updates that came before an error are returned first. The engine client's watchdog bounds the wait.
        Raises ApiError when the engine failed or refused a sequence, ClientGoneError after ``cancel``.
        """
        while not self._updates:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        updates, self._updates = self._updates, []
        return updates

    def cancel(self) -> None:
        """Wake the reader with ClientGoneError, whatever is queued."""
        self._updates.clear()
        self.throw(ClientGoneError())

    def put(self, index: int, update: Update) -> None:
        self._updates.append((index, update))
        self._wake()

    def throw(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
