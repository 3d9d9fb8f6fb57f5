"""The body of a request, as far as this server is willing to hold it."""

from __future__ import annotations

from starlette.requests import Request

from panel.server.frontend.errors import ApiError

_PATIENCE = 16
"""How many times the limit is read and thrown away, so that a client gets to hear the refusal."""


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body; raises `ApiError` 413 where it has more than `limit` bytes."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size <= limit:
            pieces.append(piece)
        elif size > _PATIENCE * limit:
            break
    if size > limit:
        raise ApiError(
            f"the body has more than {limit} bytes, the most that max-body-bytes allows",
            status=413,
            code="body_too_large",
        )
    return b"".join(pieces)
