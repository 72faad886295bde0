"""The one error type of the HTTP layer and its JSON shape, which OpenAI clients expect."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response


class ApiError(Exception):
    """A fault that the client sees: HTTP status and ``{"error": {...}}`` body.

    ``param`` is the request field at fault; ``retry_after`` (s) becomes the Retry-After header.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        return {
            "error": {
                "message": self.message,
                "type": error_type(self.status),
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> Response:
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return json_response(self.body(), self.status, headers)


class ClientGoneError(Exception):
    """The client closed its connection; nobody is left to answer."""


def error_type(status: int) -> str:
    """OpenAI's ``type`` for an HTTP status."""
    if status == 429:
        return "rate_limit_error"
    if status == 503:
        return "service_unavailable_error"
    return "server_error" if status >= 500 else "invalid_request_error"


def bad_request(param: str, fault: str, code: str | None = None) -> ApiError:
    """400 whose message starts with the field's name."""
    return ApiError(400, f"{param}: {fault}", param=param, code=code)


def unavailable(message: str, code: str, retry_after: int | None = None) -> ApiError:
    return ApiError(503, message, code=code, retry_after=retry_after)


def brief(value: object) -> str:
    """A value as JSON-like text that fits into a message."""
    if isinstance(value, list):
        return f"a list of {len(value)} items"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    text = repr(value[:80]) if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON by msgspec: plain values and Structs; not-a-number and infinities become null."""
    return Response(msgspec.json.encode(content), status, headers, "application/json")
