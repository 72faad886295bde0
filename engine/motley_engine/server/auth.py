"""The API key: who may talk to the server."""

from __future__ import annotations

import hmac
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from motley_engine.server.errors import ApiError

# probes and scrapers carry no key
_OPEN_PATHS = ("/health", "/health_generate", "/metrics")


def read_key(setting: str) -> str:
    """The key itself from ``--api-key``: the value, or the contents of FILE for ``@FILE``; '' = no key.

    Raises ValueError when the file is missing or empty.
    """
    if not setting.startswith("@"):
        return setting
    try:
        key = Path(setting[1:]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--api-key: cannot read {setting[1:]}: {error}") from error
    if not key:
        raise ValueError(f"--api-key: {setting[1:]} is empty; write the key into it or drop the flag")
    return key


class RequireKey:
    """ASGI middleware that answers 401 unless the request brings ``Authorization: Bearer KEY``."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPEN_PATHS or scope["method"] == "OPTIONS":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("authorization", "")
        # header values are bytes that ASGI hands out as Latin-1
        if hmac.compare_digest(given.encode("latin-1"), self._expected):
            await self._app(scope, receive, send)
            return
        fault = "is missing" if not given else "does not match"
        error = ApiError(
            401, f"Authorization: the API key {fault}; send 'Authorization: Bearer KEY'", code="invalid_api_key"
        )
        await error.response()(scope, receive, send)
