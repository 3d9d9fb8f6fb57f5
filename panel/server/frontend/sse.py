"""A streamed answer: server-sent events that end when the client hangs up."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from panel.server.frontend.disconnect import unless_disconnected
from panel.server.frontend.errors import ApiError
from panel.server.frontend.wire import DONE, event


class EventStream(Response):
    """Sends blocks of events as they come.

    The status line waits for the first block, so that a request that fails before it gets a proper
    status; later failures become an error event.
    """

    media_type = "text/event-stream"

    def __init__(self, blocks: AsyncGenerator[bytes, None]) -> None:
        super().__init__(headers={"Cache-Control": "no-cache"})
        # The base class counts an empty body; a stream has no length.
        del self.headers["content-length"]
        self._blocks = blocks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Called by the server."""
        with suppress(ClientDisconnect):
            await unless_disconnected(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        begun = False
        async with aclosing(self._blocks) as blocks:
            try:
                async for block in blocks:
                    if not begun:
                        await self._begin(send)
                        begun = True
                    await self._body(send, block)
            except ApiError as error:
                if not begun:
                    raise
                await self._body(send, event(error.body) + DONE)
        await send({"type": "http.response.body", "body": b""})

    async def _begin(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )

    async def _body(self, send: Send, block: bytes) -> None:
        await send({"type": "http.response.body", "body": block, "more_body": True})
