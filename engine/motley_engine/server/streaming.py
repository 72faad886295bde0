"""Server-sent events, with every fault in the shape clients expect."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from motley_engine.server.errors import ApiError, ClientGoneError
from motley_engine.server.generation import Generation

logger = logging.getLogger(__name__)

DONE = b"data: [DONE]\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def event(content: Any) -> bytes:
    """One server-sent event with a JSON payload."""
    return b"data: " + msgspec.json.encode(content) + b"\n\n"


async def start_stream(generation: Generation, events: AsyncIterator[bytes]) -> EventStream:
    """Wait for the first event, so that a refusal still gets its own HTTP status, and answer with the stream."""
    try:
        first = await anext(events)
    except BaseException:
        generation.close()
        raise
    return EventStream(generation, first, events)


class EventStream(Response):
    """Streams a generation's events, then ``[DONE]``.

    An error after the first byte becomes an error event before ``[DONE]``. Whatever happens, the generation is closed.
    """

    def __init__(self, generation: Generation, first: bytes, rest: AsyncIterator[bytes]) -> None:
        super().__init__()
        self._generation = generation
        self._first = first
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": self._first, "more_body": True})
            last = await self._send_rest(send)
            await send({"type": "http.response.body", "body": last, "more_body": False})
        finally:
            self._generation.close()

    async def _send_rest(self, send: Send) -> bytes:
        """Send event by event and return the stream's last bytes."""
        try:
            async for chunk in self._rest:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except ApiError as error:
            return event(error.body()) + DONE
        except ClientGoneError:
            logger.debug("the client of %s closed its connection", self._generation.name)
            return b""
        except Exception:
            logger.exception("the stream of %s broke", self._generation.name)
            return event(ApiError(500, "internal error; the server's log has the details").body()) + DONE
        return DONE
