"""The HTTP application: routes, error shapes, API key. Everything it needs arrives in one ``ServerState``."""

from __future__ import annotations

import http
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from motley_engine.server.auth import RequireKey, read_key
from motley_engine.server.errors import ApiError, ClientGoneError
from motley_engine.server.protocol.schema import body_schemas
from motley_engine.server.routes import admin, chat, completions, generate, openai
from motley_engine.server.state import ServerState

logger = logging.getLogger(__name__)

# what proxies log when the client left before its answer
_CLIENT_CLOSED_REQUEST = 499


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """FastAPI's document with the request bodies, which the routes parse themselves."""
        document = super().openapi()
        document.setdefault("components", {}).setdefault("schemas", {}).update(body_schemas())
        return document


def build_app(state: ServerState) -> FastAPI:
    """The ASGI application. Its lifespan starts and stops ``state.client``.

    Raises ValueError when ``--api-key @FILE`` cannot be read.
    """
    app = _App(title="motley", version=state.version, lifespan=_lifespan)
    app.state.server = state
    for routes in (openai, chat, completions, generate, admin):
        app.include_router(routes.router)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(ClientGoneError, _client_gone)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _internal_error)
    key = read_key(state.config.server.api_key)
    if key:
        app.add_middleware(RequireKey, key=key)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    state: ServerState = app.state.server
    state.client.start()
    yield
    await state.client.stop()


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _client_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=_CLIENT_CLOSED_REQUEST)


async def _http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, in the same shape as every other error."""
    assert isinstance(error, HTTPException)
    phrase = http.HTTPStatus(error.status_code).phrase.lower()
    response = ApiError(error.status_code, f"{request.method} {request.url.path[:200]}: {phrase}").response()
    response.headers.update(error.headers or {})
    return response


async def _internal_error(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return ApiError(500, "internal error; the server's log has the details").response()
