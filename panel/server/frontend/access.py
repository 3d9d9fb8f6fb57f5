"""Who may call, and the line a call leaves in the log."""

from __future__ import annotations

import hmac
import logging
import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from panel.server.frontend.errors import ApiError

log = logging.getLogger(__name__)


class AccessLog:
    """Writes one line a request: at info for the API, at debug for probes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Called by the server."""
        began = time.monotonic()
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            client = scope.get("client") or ("-", 0)
            log.log(
                logging.INFO if scope["path"].startswith("/v1/") else logging.DEBUG,
                "%s:%d %s %s %s in %.3f s",
                *client,
                scope["method"],
                # Quoted, so that a path with line breaks stays one line of the log.
                ascii(scope["path"])[1:-1],
                status or "no answer",
                time.monotonic() - began,
            )


class BearerCheck:
    """Refuses calls that need the API key and do not have it."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Called by the server."""
        given = Headers(scope=scope).get("authorization", "").encode("latin-1")
        if _guarded(scope["path"]) and not hmac.compare_digest(given, self._expected):
            error = ApiError(
                "missing or wrong API key: send Authorization: Bearer KEY",
                status=401,
                code="invalid_api_key",
            )
            await error.response()(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _guarded(path: str) -> bool:
    """Whether a call uses the engine; probes only look at it."""
    return path.startswith("/v1/") or path in ("/abort_request", "/flush_cache")
