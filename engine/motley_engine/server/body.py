"""Request bodies from the socket, never more than the limit in memory."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from motley_engine.server.errors import ApiError, ClientGoneError, bad_request
from motley_engine.server.state import ServerState

BODY_SECONDS = 120.0
"""How long a client may take to send its body."""


def server_state(request: Request) -> ServerState:
    """The state that ``build_app`` was given."""
    state: ServerState = request.app.state.server
    return state


async def read_body(request: Request) -> bytes:
    """The whole body.

    Raises ApiError 413 as soon as it is known to exceed ``--max-request-mib``, 408 after ``BODY_SECONDS``.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _read(request)
    except TimeoutError:
        raise ApiError(408, f"body: not complete after {BODY_SECONDS:g} s", param="body", code="timeout") from None


async def _read(request: Request) -> bytes:
    limit = server_state(request).config.server.max_request_mib
    size = request.headers.get("content-length", "0")
    if not (size.isascii() and size.isdigit()):
        raise bad_request("Content-Length", "not a number")
    if int(size[:20]) > limit << 20:
        raise _too_large(limit)
    parts, total = [], 0
    try:
        async for part in request.stream():
            total += len(part)
            if total > limit << 20:
                raise _too_large(limit)
            parts.append(part)
    except ClientDisconnect:
        raise ClientGoneError from None
    return b"".join(parts)


def _too_large(limit: int) -> ApiError:
    message = f"body: larger than {limit} MiB; send less or start the server with a larger --max-request-mib"
    return ApiError(413, message, param="body", code="request_too_large")
