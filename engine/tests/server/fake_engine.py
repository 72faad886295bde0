"""A scheduler that speaks the real protocol over real sockets and echoes prompts, one token per sequence and step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from motley_engine.comm.mailbox import TO_SCHEDULER, TO_SERVER
from motley_engine.messages import (
    Abort,
    Batch,
    Drain,
    Drained,
    FinishReason,
    Flush,
    Flushed,
    Generate,
    Heartbeat,
    Inspect,
    LogprobOptions,
    Refused,
    Stats,
    TokenLogprob,
    ToScheduler,
    ToServer,
    Update,
)


class FakeEngine:
    """Answers a prompt with the prompt itself, then the end token; without end ids the prompt repeats.

    ``pause_after`` stalls every sequence that has that many tokens. ``silent`` swallows every message. ``refusal`` is
    the code with which new sequences are refused, ``error`` the message with which running ones end.
    ``tokens_per_update`` is how many tokens one update brings.
    """

    def __init__(self, directory: Path, end_token: int) -> None:
        self.directory = directory
        self.end_token = end_token
        self.pause_after: int | None = None
        self.silent = False
        self.refusal: str | None = None
        self.error: str | None = None
        self.tokens_per_update = 1
        self.received: list[ToScheduler] = []
        self.arrived = asyncio.Condition()
        self.running: dict[str, _Echo] = {}

    def start(self) -> None:
        self._context = zmq.asyncio.Context()
        self._pull = self._context.socket(zmq.PULL)
        self._pull.bind(f"ipc://{self.directory / TO_SCHEDULER}")
        self._push = self._context.socket(zmq.PUSH)
        self._push.connect(f"ipc://{self.directory / TO_SERVER}")
        self._wake = asyncio.Event()
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._step_loop())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._pull.close(0)
        self._push.close(0)
        self._context.term()

    async def wait_for(self, kind: type, count: int = 1, timeout: float = 10.0) -> list:
        """Messages of ``kind`` received so far, once there are ``count``."""

        def found() -> list:
            return [message for message in self.received if isinstance(message, kind)]

        async with asyncio.timeout(timeout), self.arrived:
            await self.arrived.wait_for(lambda: len(found()) >= count)
        return found()

    async def say(self, message: ToServer) -> None:
        await self._push.send(msgspec.msgpack.encode(message))

    def resume(self) -> None:
        """Look again at sequences that were paused."""
        self._wake.set()

    def stats(self, call: int = -1) -> Stats:
        return Stats(
            call=call,
            running=len(self.running),
            prompt_tokens=100,
            cached_tokens=25,
            pages_total=63,
            pages_free=40,
            pages_cached=23,
        )

    async def _listen(self) -> None:
        decoder = msgspec.msgpack.Decoder(ToScheduler)
        while True:
            message = decoder.decode(await self._pull.recv())
            async with self.arrived:
                self.received.append(message)
                self.arrived.notify_all()
            if not self.silent:
                await self._handle(message)

    async def _handle(self, message: ToScheduler) -> None:
        match message:
            case Generate():
                await self._generate(message)
            case Abort(rid=rid, reason=reason):
                for known in [rid] if rid else list(self.running):
                    if self.running.pop(known, None) is not None and reason != "stop":
                        finish = FinishReason(kind="abort", message=reason)
                        await self.say(Batch(updates=[Update(rid=known, finish=finish)]))
            case Flush(call=call):
                busy = bool(self.running)
                await self.say(Flushed(call=call, ok=not busy, message="1 request is running" if busy else "ok"))
            case Inspect(call=call):
                await self.say(self.stats(call))
            case Drain():
                await self.say(Drained())

    async def _generate(self, message: Generate) -> None:
        if self.refusal is not None:
            refused = Refused(rid=message.rid, code=self.refusal, message="no room", retry_after=7)
            await self.say(refused)
            return
        self.running[message.rid] = _Echo(message, self.end_token)
        self._wake.set()

    async def _step_loop(self) -> None:
        while True:
            await self._wake.wait()
            active = [echo for echo in self.running.values() if not self._paused(echo)]
            if not active:
                self._wake.clear()
                await self.say(Heartbeat(steps=0))
                continue
            updates = [self._step(echo) for echo in active]
            for update in updates:
                if update.finish is not None:
                    del self.running[update.rid]
            await self.say(Batch(updates=updates))
            # let everybody else of this loop have a turn between two steps
            await asyncio.sleep(0)

    def _paused(self, echo: _Echo) -> bool:
        return self.pause_after is not None and echo.produced >= self.pause_after

    def _step(self, echo: _Echo) -> Update:
        if self.error is not None:
            return Update(rid=echo.request.rid, finish=FinishReason(kind="error", message=self.error))
        return echo.step(self.tokens_per_update)


class _Echo:
    """One running sequence."""

    def __init__(self, request: Generate, end_token: int) -> None:
        self.request = request
        self.produced = 0
        self.tokens = self._tokens(end_token)

    def step(self, count: int) -> Update:
        ids: list[int] = []
        finish = None if self.request.sampling.max_new_tokens else FinishReason(kind="length")
        while finish is None and len(ids) < count:
            ids.append(next(self.tokens))
            self.produced += 1
            finish = self._finish(ids[-1])
        first = self.produced == len(ids)
        wanted = self.request.logprobs
        return Update(
            rid=self.request.rid,
            token_ids=ids,
            finish=finish,
            cached_tokens=len(self.request.input_ids) - 1 if first else None,
            logprobs=None if wanted is None else [logprob_of(token, wanted) for token in ids],
            prompt_logprobs=self._prompt_logprobs() if first else None,
        )

    def _tokens(self, end_token: int) -> Iterator[int]:
        while True:
            yield from self.request.input_ids
            if end_token in self.request.sampling.stop_token_ids:
                yield end_token

    def _finish(self, token: int) -> FinishReason | None:
        sampling = self.request.sampling
        if token in sampling.stop_token_ids and self.produced >= sampling.min_new_tokens:
            return FinishReason(kind="stop", matched=token)
        return FinishReason(kind="length") if self.produced >= sampling.max_new_tokens else None

    def _prompt_logprobs(self) -> list[TokenLogprob] | None:
        wanted = self.request.logprobs
        if wanted is None or wanted.start < 0:
            return None
        entries = [logprob_of(token, wanted) for token in self.request.input_ids[wanted.start :]]
        if wanted.start == 0:
            entries[0] = TokenLogprob(None, self.request.input_ids[0])
        return entries


def logprob_of(token: int, wanted: LogprobOptions) -> TokenLogprob:
    """A made-up but reproducible logprob with alternatives."""
    top = tuple((-0.5 - place, (token + place) % 256) for place in range(wanted.top))
    return TokenLogprob(-0.5, token, top, tuple((-9.0, asked) for asked in wanted.token_ids))
