"""The HTTP API; docs/architecture.md has the table."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from panel.domain.errors import PanelError, UsageError
from panel.domain.flags import Flag, Profile
from panel.domain.wire import ApiError, Down, ErrorReply, Relaunch, Up
from panel.supervisor.log_routes import LogRoutes
from panel.supervisor.node import Node
from panel.supervisor.note_routes import NoteRoutes
from panel.supervisor.probe_routes import ProbeRoutes

log = logging.getLogger(__name__)

LEAST_PAUSE_S = 0.1
KEEPALIVE_S = 5.0
_DEFAULT_ROWS = 50
_JSON = "application/json"

Body = TypeVar("Body")
Wish = TypeVar("Wish", Up, Relaunch)
Handler = Callable[[Request], Awaitable[Response]]


def make_app(node: Node) -> Starlette:
    """Return the application that serves `node`."""
    routes = Routes(node)
    return Starlette(
        routes=[
            Route("/v1/snapshot", routes.snapshot),
            Route("/v1/events", routes.events),
            Route("/v1/flags", routes.flags),
            Route("/v1/plan", routes.plan, methods=["POST"]),
            Route("/v1/up", routes.up, methods=["POST"]),
            Route("/v1/relaunch", routes.relaunch, methods=["POST"]),
            Route("/v1/down", routes.down, methods=["POST"]),
            Route("/v1/shutdown", routes.shutdown, methods=["POST"]),
            Route("/v1/launches", routes.launches),
            Route("/v1/launches/{id:int}", routes.launch),
            Route("/v1/launches/{id:int}/evidence", routes.evidence),
            *LogRoutes(node).routes(),
            *ProbeRoutes(node).routes(),
            *NoteRoutes(node).routes(),
        ],
        exception_handlers={
            PanelError: _panel_error,
            HTTPException: _http_error,
            Exception: _fault,
        },
    )


class Routes:
    """One method a route."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def snapshot(self, _: Request) -> Response:
        """The present snapshot; waits for the first one."""
        await self._node.publisher.wait_newer(0, KEEPALIVE_S)
        return Response(self._node.publisher.encoded, media_type=_JSON)

    async def events(self, request: Request) -> Response:
        """The stream of snapshots newer than `since`."""
        stream = self._stream(_number(request, "since", 0))
        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def flags(self, request: Request) -> Response:
        """The flags of a profile's engine."""
        return _json(await self._flags(request.query_params.get("profile")))

    async def plan(self, request: Request) -> Response:
        """What a launch would be."""
        base = request.query_params.get("base", "profile")
        if base == "profile":
            return _json(self._node.plan_up(await self._known(request, Up)))
        if base == "latest":
            return _json(self._node.plan_relaunch(await self._known(request, Relaunch)))
        raise UsageError(f"base={base!r}", "profile or latest")

    async def up(self, request: Request) -> Response:
        """Launch."""
        return _json(self._node.up(await self._known(request, Up)), 202)

    async def relaunch(self, request: Request) -> Response:
        """Stop, then launch."""
        return _json(self._node.relaunch(await self._known(request, Relaunch)), 202)

    async def down(self, request: Request) -> Response:
        """Stop the gang."""
        return _json(self._node.down((await _body(request, Down)).now), 202)

    async def shutdown(self, request: Request) -> Response:
        """Stop the gang, then the supervisor."""
        return _json(self._node.shutdown((await _body(request, Down)).now), 202)

    async def launches(self, request: Request) -> Response:
        """The ledger, newest first."""
        return _json(self._node.ledger.recent(_number(request, "limit", _DEFAULT_ROWS)))

    async def launch(self, request: Request) -> Response:
        """One row of the ledger."""
        return _json(self._node.ledger.get(request.path_params["id"]))

    async def evidence(self, request: Request) -> Response:
        """What is new in the events of the present launch."""
        number, offset = request.path_params["id"], _number(request, "offset", 0)
        return _json(self._node.evidence(number, offset))

    async def _known(self, request: Request, kind: type[Wish]) -> Wish:
        """Return the body, once its engine has told its flags."""
        body = await _body(request, kind)
        await self._flags((isinstance(body, Up) and body.recipe) or body.profile)
        return body

    async def _flags(self, profile: Profile | str | None) -> tuple[Flag, ...]:
        return await asyncio.to_thread(self._node.flags, profile)

    async def _stream(self, since: int) -> AsyncIterator[bytes]:
        publisher = self._node.publisher
        while not publisher.closed:
            if await publisher.wait_newer(since, KEEPALIVE_S):
                since = publisher.seq
                yield b"event: snapshot\nid: %d\ndata: %s\n\n" % (since, publisher.encoded)
                await asyncio.sleep(LEAST_PAUSE_S)
            elif not publisher.closed:
                yield b": still here\n\n"


async def _body(request: Request, kind: type[Body]) -> Body:
    data = await request.body()
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise UsageError(f"the body is not understood: {error}") from None


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isdecimal():
        raise UsageError(f"{name}={text!r} is not a whole number")
    return int(text)


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=_JSON)


def _error(error: PanelError, status: int) -> Response:
    reply = ApiError(kind=error.kind, message=error.message, hint=error.hint, exit=error.exit_code)
    return _json(ErrorReply(error=reply), status)


async def _panel_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, PanelError)
    return _error(error, error.status)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = f"{request.method} {request.url.path}: {error.detail}"
    hint = "panel and supervisor may be of different versions"
    return _error(UsageError(words, hint), error.status_code)


async def _fault(_: Request, error: Exception) -> Response:
    log.error("a fault of the supervisor", exc_info=error)
    text = f"a fault of the supervisor: {type(error).__name__}: {error}"
    return _error(PanelError(text, "its log has more"), 500)
