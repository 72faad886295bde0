"""The one path from checked requests to finished choices; every route that generates goes through it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from starlette.types import Receive

from motley_engine.messages import Generate, Update
from motley_engine.server.choice import Choice
from motley_engine.server.errors import ApiError
from motley_engine.server.resolve import SequenceRequest
from motley_engine.server.state import ServerState


@dataclass(slots=True)
class _Marks:
    """When a choice's tokens came, in seconds of the performance counter."""

    first: float
    last: float
    ended: bool = False


class Generation:
    """The sequences of one HTTP request while they run.

    Iterating yields the choices that have something new to send. ``close`` must be called in every case; it aborts
    what still runs. A connection that closes ends the iteration with ClientGoneError.
    """

    def __init__(self, state: ServerState, names: Sequence[str], requests: Sequence[SequenceRequest]) -> None:
        """Submits at once; ``names`` has the client's name for each sequence.

        Raises ApiError 503 when the engine is gone, 400 when a name is in use.
        """
        self.name = names[0]
        self.started = time.perf_counter()
        self.choices = [Choice(index, request, state.tokenizer) for index, request in enumerate(requests)]
        self._client = state.client
        self._metrics = state.metrics
        self._interval = state.config.server.stream_interval
        self._marks = [_Marks(self.started, self.started) for _ in requests]
        self._open = len(requests)
        self._watcher: asyncio.Task[None] | None = None
        self._outcome = "disconnect"
        messages = [
            Generate(
                rid=self._client.next_rid(),
                input_ids=request.prompt_ids,
                sampling=request.sampling,
                logprobs=request.logprobs,
                priority=request.priority,
            )
            for request in requests
        ]
        self._subscription = self._client.submit(names, messages)

    def watch(self, receive: Receive) -> None:
        """End the generation when the connection behind ``receive`` closes. The body must have been read."""
        self._watcher = asyncio.create_task(self._until_disconnect(receive))

    @property
    def elapsed(self) -> float:
        """Seconds since the request was submitted."""
        return time.perf_counter() - self.started

    async def __aiter__(self) -> AsyncIterator[list[Choice]]:
        while self._open:
            updates = await self._next()
            now = time.perf_counter()
            ready: dict[int, Choice] = {}
            for index, update in updates:
                self._feed(index, update, now)
                choice = self.choices[index]
                if choice.finish is not None or self._due(choice):
                    ready[index] = choice
            if ready:
                yield list(ready.values())

    async def collect(self) -> list[Choice]:
        """Wait for all choices to end; closed afterwards, however the wait ends."""
        try:
            async for _ in self:
                pass
        finally:
            self.close()
        return self.choices

    def close(self) -> None:
        """Abort what still runs and forget the request. May be called twice."""
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None
        for index, choice in enumerate(self.choices):
            if choice.finish is None and not self._marks[index].ended:
                self._marks[index].ended = True
                self._metrics.outcomes[self._outcome] += 1
        self._client.close(self._subscription)

    async def _next(self) -> list[tuple[int, Update]]:
        try:
            return await self._subscription.next()
        except ApiError:
            self._outcome = "error" if self._client.failure else "refused"
            raise

    def _due(self, choice: Choice) -> bool:
        # the first token goes out at once, then one event per stream_interval tokens
        return choice.pending_tokens >= self._interval or 0 < choice.pending_tokens == len(choice.output_ids)

    def _feed(self, index: int, update: Update, now: float) -> None:
        choice, marks = self.choices[index], self._marks[index]
        if choice.finish is not None:
            return
        before = len(choice.output_ids)
        choice.feed(update)
        self._mark(marks, len(choice.output_ids) - before, before == 0, now)
        if choice.finish is None:
            return
        self._open -= 1
        if update.finish is None:
            self._client.release(self._subscription, index)
        self._finished(choice, marks, now)

    def _mark(self, marks: _Marks, count: int, first: bool, now: float) -> None:
        if count == 0:
            return
        if first:
            self._metrics.first_token.observe(now - self.started)
            marks.first = now
        else:
            self._metrics.inter_token.observe((now - marks.last) / count, count)
        marks.last = now

    def _finished(self, choice: Choice, marks: _Marks, now: float) -> None:
        assert choice.finish is not None
        marks.ended = True
        metrics, count = self._metrics, len(choice.output_ids)
        metrics.outcomes[choice.finish.kind] += 1
        metrics.whole.observe(now - self.started)
        metrics.prompt_length.observe(len(choice.request.prompt_ids))
        metrics.output_length.observe(count)
        if count > 1:
            metrics.per_token.observe((now - marks.first) / (count - 1))
        if choice.finish.kind == "error":
            self._outcome = "error"
            raise ApiError(500, choice.finish.message or "the engine failed on this request", code="engine_error")

    async def _until_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._subscription.cancel()
