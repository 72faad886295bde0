"""The HTTP process's end of the line to the scheduler: submits sequences, fans updates out, bounds every wait.

Knows tokens and message types only. One instance lives in one event loop; nothing here is thread-safe.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import zmq
import zmq.asyncio

from motley_engine.comm.mailbox import TO_SCHEDULER, TO_SERVER
from motley_engine.messages import (
    Abort,
    Batch,
    Drain,
    Drained,
    Flush,
    Flushed,
    Generate,
    Heartbeat,
    Inspect,
    Refused,
    Shutdown,
    Stats,
    ToScheduler,
    ToServer,
    Update,
)
from motley_engine.server.errors import ApiError, bad_request, brief, unavailable
from motley_engine.server.subscription import Subscription

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer", Flushed, Stats)


class EngineClient:
    """Talks to the scheduler over two sockets in ``directory``: PUSH to the scheduler's, PULL on our own.

    ``silence_limit`` s without any message while something is open fails the client: a scheduler says something
    at least every second, if only a heartbeat.
    """

    def __init__(self, directory: Path, *, silence_limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._silence_limit = silence_limit
        self._clock = clock
        self._numbers = itertools.count(1)
        self._sequences: dict[str, tuple[Subscription, int]] = {}
        self._names: dict[str, Subscription] = {}
        self._open: set[Subscription] = set()
        self._calls: dict[int, asyncio.Future[Flushed | Stats]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[ToServer] = msgspec.msgpack.Decoder(ToServer)
        self._context: zmq.asyncio.Context | None = None
        self.stats: Stats | None = None
        self.failure: str | None = None
        self.drained = asyncio.Event()
        self.heard = asyncio.Event()
        """Set by the first message: the scheduler is up."""
        self.outputs = 0
        """Messages with tokens so far."""
        self._last_message = clock()
        self._output_waiters: set[asyncio.Future[None]] = set()

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Bind and connect; does nothing when already started. Call inside the event loop."""
        if self._context is not None:
            return
        self._context = zmq.asyncio.Context()
        self._pull = self._context.socket(zmq.PULL)
        self._pull.set_hwm(0)
        self._pull.bind(f"ipc://{self._directory / TO_SERVER}")
        # sends go through a plain socket: without a high-water mark they never block and need no task
        self._push: zmq.Socket[bytes] = zmq.Context.shadow(self._context).socket(zmq.PUSH)
        self._push.set_hwm(0)
        self._push.connect(f"ipc://{self._directory / TO_SCHEDULER}")
        self._last_message = self._clock()
        self._tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._watch())]

    async def stop(self) -> None:
        """Fail what is open and close the sockets; unsent messages get 100 ms."""
        self.fail("the server is shutting down")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._context is not None:
            self._pull.close(linger=0)
            self._push.close(linger=100)
            self._context.term()

    def fail(self, reason: str) -> None:
        """End every open request and call with ``reason`` at once and refuse later ones. The first reason stays."""
        if self.failure is not None:
            return
        self.failure = reason
        for subscription in self._open:
            subscription.throw(self._failed())
        for call in self._calls.values():
            if not call.done():
                call.set_exception(self._failed())
        self._open.clear()
        self._names.clear()
        self._sequences.clear()
        self._calls.clear()
        self._wake_waiters()
        self._idle.set()

    # -- requests ---------------------------------------------------------------------------------------------------

    @property
    def open_requests(self) -> int:
        """HTTP requests that are being answered."""
        return len(self._open)

    def next_rid(self) -> str:
        """A name no sequence of this process has had."""
        return str(next(self._numbers))

    def submit(self, names: Sequence[str], sequences: Sequence[Generate]) -> Subscription:
        """Send the sequences of one HTTP request; ``names`` has the client's name for each.

        Raises ApiError 503 after ``fail``, 400 when a name belongs to a request that is still open.
        """
        self._check_alive()
        for name in names:
            if name in self._names:
                raise bad_request("rid", f"{brief(name)} names a request that is still running; choose another")
        subscription = Subscription(names, [sequence.rid for sequence in sequences])
        self._open.add(subscription)
        self._idle.clear()
        for index, (name, sequence) in enumerate(zip(names, sequences, strict=True)):
            self._names[name] = subscription
            self._sequences[sequence.rid] = (subscription, index)
            self._send(sequence)
        return subscription

    def release(self, subscription: Subscription, index: int) -> None:
        """A stop string matched: the scheduler may drop the sequence, nobody waits for more."""
        rid = subscription.rids[index]
        if self._sequences.pop(rid, None) is not None:
            self._send(Abort(rid=rid, reason="stop"))

    def close(self, subscription: Subscription) -> None:
        """The HTTP request is over; what still runs is aborted. May be called twice."""
        for rid in subscription.rids:
            if self._sequences.pop(rid, None) is not None and self.failure is None:
                self._send(Abort(rid=rid, reason="client closed the request"))
        if subscription in self._open:
            self._open.remove(subscription)
            for name in set(subscription.names):
                del self._names[name]
        if not self._open:
            self._idle.set()

    def abort(self, name: str) -> int:
        """Ask the scheduler to end what ``name`` stands for and return how many sequences that is.

        Its reader gets finishes of kind 'abort'.
        """
        subscription = self._names.get(name)
        if subscription is None:
            return 0
        pairs = zip(subscription.names, subscription.rids, strict=True)
        live = [rid for known, rid in pairs if known == name and rid in self._sequences]
        for rid in live:
            self._send(Abort(rid=rid))
        return len(live)

    def abort_all(self, reason: str = "abort") -> int:
        """Like ``abort`` for everything that runs or waits."""
        if self._sequences:
            self._send(Abort(rid="", reason=reason))
        return len(self._sequences)

    # -- calls ------------------------------------------------------------------------------------------------------

    async def flush(self, timeout: float) -> Flushed:
        """Drop the prefix cache. Raises ApiError 503 after ``timeout`` s or when the engine has failed."""
        number = next(self._numbers)
        return await self._call(number, Flush(call=number), timeout, Flushed)

    async def inspect(self, timeout: float) -> Stats:
        """Fresh counters. Raises ApiError 503 after ``timeout`` s or when the engine has failed."""
        number = next(self._numbers)
        return await self._call(number, Inspect(call=number), timeout, Stats)

    def drain(self) -> None:
        """Tell the scheduler to take nothing new; ``drained`` is set when it has finished everything."""
        if self.failure is None:
            self._send(Drain())

    async def wait_idle(self, timeout: float) -> bool:
        """Wait until no request is open. False after ``timeout`` s."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def shutdown(self) -> None:
        """Tell the scheduler to end the ranks."""
        self._send(Shutdown())

    def silence(self) -> float:
        """Seconds since the scheduler's last message."""
        return self._clock() - self._last_message

    async def wait_output(self, seen: int) -> None:
        """Wait until more messages with tokens have come than ``seen``. The caller bounds the wait.

        Raises ApiError 503 when the engine fails meanwhile.
        """
        while self.outputs <= seen:
            self._check_alive()
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._output_waiters.add(waiter)
            await waiter

    async def _call(self, number: int, message: ToScheduler, timeout: float, kind: type[Answer]) -> Answer:
        self._check_alive()
        future: asyncio.Future[Flushed | Stats] = asyncio.get_running_loop().create_future()
        self._calls[number] = future
        self._send(message)
        try:
            async with asyncio.timeout(timeout):
                answer = await future
        except TimeoutError:
            raise unavailable(f"the engine did not answer within {timeout:g} s", "engine_timeout", 5) from None
        finally:
            self._calls.pop(number, None)
        if not isinstance(answer, kind):
            raise TypeError(f"call {number} was answered with {type(answer).__name__}, wanted {kind.__name__}")
        return answer

    # -- the line ---------------------------------------------------------------------------------------------------

    def _check_alive(self) -> None:
        if self.failure is not None:
            raise self._failed()

    def _failed(self) -> ApiError:
        return unavailable(f"the engine has stopped: {self.failure}", "engine_failed")

    def _send(self, message: ToScheduler) -> None:
        self._push.send(self._encoder.encode(message), zmq.NOBLOCK)

    async def _receive(self) -> None:
        try:
            while True:
                self._handle(self._decoder.decode(await self._pull.recv()))
        except (msgspec.DecodeError, zmq.ZMQError) as error:
            logger.exception("cannot read the scheduler's messages")
            self.fail(f"a message of the scheduler could not be read: {error}")

    def _handle(self, message: ToServer) -> None:
        self._last_message = self._clock()
        self.heard.set()
        match message:
            case Batch():
                if any(update.token_ids for update in message.updates):
                    self._count_output()
                for update in message.updates:
                    self._deliver(update)
            case Stats():
                self.stats = message
                self._answer(message)
            case Flushed():
                self._answer(message)
            case Refused():
                self._refuse(message)
            case Drained():
                self.drained.set()
            case Heartbeat():
                pass

    def _count_output(self) -> None:
        self.outputs += 1
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        for waiter in self._output_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._output_waiters.clear()

    def _deliver(self, update: Update) -> None:
        # updates of sequences that were closed or released here meanwhile have no entry and are dropped
        entry = self._sequences.get(update.rid)
        if entry is None:
            return
        if update.finish is not None:
            del self._sequences[update.rid]
        subscription, index = entry
        subscription.put(index, update)

    def _refuse(self, refusal: Refused) -> None:
        entry = self._sequences.pop(refusal.rid, None)
        if entry is None:
            return
        if refusal.code == "invalid":
            error = ApiError(400, refusal.message, code="invalid")
        else:
            error = unavailable(refusal.message, refusal.code, refusal.retry_after)
        entry[0].throw(error)

    def _answer(self, message: Flushed | Stats) -> None:
        call = self._calls.get(message.call)
        if call is not None and not call.done():
            call.set_result(message)

    async def _watch(self) -> None:
        """Fail when the scheduler is silent for too long while somebody waits for it."""
        while self.failure is None:
            await asyncio.sleep(min(1.0, self._silence_limit / 4))
            silence = self.silence()
            if self._sequences and silence > self._silence_limit:
                self.fail(f"nothing heard from the scheduler for {silence:.0f} s")
