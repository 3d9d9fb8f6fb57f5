"""Keeps a log model in step with the logs of the launch on screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from panel.client import At, Client
from panel.domain.errors import PanelError
from panel.domain.snapshot import LaunchView
from panel.domain.wire import LogWindow
from panel.widgets.log_model import LogModel

_GROWTH = 64 << 10
"""Bytes of a source read at once; what grows faster is followed by its tail alone."""
_OLDER = 256 << 10


class LogFeed:
    """Asks for what grew, one request at a time; the model is new with each launch."""

    def __init__(self, client: Client, tail: int) -> None:
        """`tail`: bytes of each source to begin with."""
        self._client = client
        self._tail = tail
        self._launch: str | None = None
        self._turn = asyncio.Lock()
        self.model = LogModel()

    def turn_to(self, launch: LaunchView) -> bool:
        """Return whether this is another launch than before; the model is then empty."""
        if launch.uuid == self._launch:
            return False
        self._launch = launch.uuid
        self.model.clear()
        return True

    async def pull(self, launch: LaunchView, *, holding: bool = False) -> bool:
        """Read what is new; return whether the model changed.

        `holding`: somebody looks at old records, so that none may make way for a tail.
        """
        if self._turn.locked():
            return False
        async with self._turn:
            first = self.model.empty
            wanted = self.model.wanted(launch.log_sizes, self._tail if first else _GROWTH)
            if holding:
                wanted = {source: at for source, at in wanted.items() if at != "tail"}
            limit = self._tail if first else _GROWTH
            return await self._read(launch, wanted, limit, self.model.add)

    async def pull_older(self, launch: LaunchView) -> bool:
        """Read what lies before the records held; return whether there was anything."""
        async with self._turn:
            # A window begins where its first line does: asked for as much again, it reaches ours.
            wanted = self.model.older(_OLDER)
            return await self._read(launch, wanted, 2 * _OLDER, self.model.prepend)

    async def _read(
        self,
        launch: LaunchView,
        at: Mapping[str, At],
        limit: int,
        take: Callable[[tuple[LogWindow, ...]], None],
    ) -> bool:
        """A failure counts as nothing new: the view tells it, and the next snapshot asks again."""
        if not at:
            return False
        try:
            windows = await self._client.logs(launch.id, at, limit)
        except PanelError:
            return False
        if launch.uuid != self._launch:
            return False
        take(windows)
        return True
