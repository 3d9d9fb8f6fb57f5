"""One search over the logs of a launch, kept up with their growth."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from panel.client import Client
from panel.domain.errors import PanelError
from panel.logs.files import ReplacedError
from panel.logs.query import Query
from panel.widgets.log_hits import Hits

_PAUSE_S = 0.1
"""Least time between two words about what was found."""


class Finder:
    """What is sought, and what was found by now. `run` is the search itself."""

    def __init__(self, client: Client, query: Query) -> None:
        self._client = client
        self.query = query
        self.hits = Hits()
        self.trouble = ""
        """Why it does not go on."""

    @property
    def searching(self) -> bool:
        """Whether there is text that was not looked at yet."""
        return not self.trouble and self.hits.left != 0

    async def run(
        self, launch: int, sources: tuple[str, ...], follow: bool, changed: Callable[[], None]
    ) -> None:
        """Search until everything was, with `follow` for ever; `changed` is called now and then.

        A log that is another one by now is searched from the beginning.
        """
        due = asyncio.Event()
        telling = asyncio.create_task(_tell(due, changed))
        try:
            await self._go_on(launch, sources, follow, due)
        finally:
            telling.cancel()
        changed()

    async def _go_on(
        self, launch: int, sources: tuple[str, ...], follow: bool, due: asyncio.Event
    ) -> None:
        while True:
            try:
                async for found in self._client.search(launch, self.query, sources, follow=follow):
                    self.hits.take(found)
                    due.set()
                return
            except ReplacedError:
                self.hits.clear()
                await asyncio.sleep(_PAUSE_S)
            except PanelError as error:
                self.trouble = str(error)
                return


async def _tell(due: asyncio.Event, changed: Callable[[], None]) -> None:
    while True:
        await due.wait()
        due.clear()
        changed()
        await asyncio.sleep(_PAUSE_S)
