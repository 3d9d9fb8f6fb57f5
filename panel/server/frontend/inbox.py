"""News of one request, between the link that brings it and the handler that takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from panel.server.frontend.errors import ApiError
from panel.server.messages import Tokens


class Inbox:
    """What rank 0 said of the sequences of one request and nobody has taken yet."""

    def __init__(self, rids: Iterable[str]) -> None:
        self.open = set(rids)
        """Sequences that have not finished."""
        self._news: list[Tokens] = []
        self._wake = asyncio.Event()
        self._failure: str | None = None

    def put(self, tokens: Tokens) -> None:
        """Add news of one sequence."""
        if tokens.finish is not None:
            self.open.discard(tokens.rid)
        self._news.append(tokens)
        self._wake.set()

    def fail(self, reason: str) -> None:
        """End the request: nothing more will come."""
        self._failure = reason
        self._wake.set()

    async def take(self) -> list[Tokens]:
        """Wait for news and return all of it; raises `ApiError` 503 where none will come."""
        while not self._news:
            if self._failure is not None:
                raise ApiError(self._failure, status=503, code="engine_unavailable")
            self._wake.clear()
            await self._wake.wait()
        news, self._news = self._news, []
        return news
