"""The part of the HTTP API for operators' notes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from panel.domain.errors import NotFoundError, UsageError
from panel.domain.notes import Note, Notes
from panel.supervisor.node import Node
from panel.supervisor.notes import add_note, read_notes


class NoteRoutes:
    """One method a route."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        """Return the table."""
        path = "/v1/launches/{id:int}/notes"
        return [Route(path, self.notes), Route(path, self.add, methods=["POST"])]

    async def notes(self, request: Request) -> Response:
        """All notes of a launch."""
        return _json(await asyncio.to_thread(read_notes, self._folder(request)))

    async def add(self, request: Request) -> Response:
        """One more; all come back."""
        try:
            note = msgspec.json.decode(await request.body(), type=Note)
        except msgspec.DecodeError as error:
            raise UsageError(f"the body is not understood: {error}") from None
        return _json(await asyncio.to_thread(add_note, self._folder(request), note.text))

    def _folder(self, request: Request) -> Path:
        number = request.path_params["id"]
        folder = self._node.home.launch(number)
        if not folder.is_dir():
            raise NotFoundError(f"launch {number} has no evidence", f"expected {folder}")
        return folder


def _json(value: Notes) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
