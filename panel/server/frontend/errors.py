"""Errors for clients, in the shape that OpenAI's clients understand."""

from __future__ import annotations

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

CLIENT_GONE = 499
"""The status that logs show for a client that hung up; nobody receives it."""


class ErrorDetail(msgspec.Struct, frozen=True):
    """What went wrong, for a person and for a program."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True):
    """The JSON of every error."""

    error: ErrorDetail


class ApiError(Exception):
    """Ends a request with an HTTP status and an error body."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        kind = "server_error" if status >= 500 else "invalid_request_error"
        self.body = msgspec.json.encode(ErrorBody(ErrorDetail(message, kind, param, code)))

    def response(self) -> Response:
        """Return the whole answer."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return Response(self.body, self.status, headers, "application/json")


async def on_api_error(_: Request, error: Exception) -> Response:
    """Answer an `ApiError`."""
    assert isinstance(error, ApiError)
    return error.response()


async def on_http_error(_: Request, error: Exception) -> Response:
    """Answer what the router refuses: unknown path, wrong method."""
    assert isinstance(error, HTTPException)
    return ApiError(str(error.detail), status=error.status_code).response()


async def on_hang_up(_: Request, error: Exception) -> Response:
    """Answer a client that is gone, with a status for the log."""
    assert isinstance(error, ClientDisconnect)
    return Response(status_code=CLIENT_GONE)


async def on_bug(_: Request, error: Exception) -> Response:
    """Answer an exception nobody expected; its traceback goes to the log."""
    message = f"the front end failed: {type(error).__name__}; see its log"
    return ApiError(message, status=500, code="internal_error").response()
