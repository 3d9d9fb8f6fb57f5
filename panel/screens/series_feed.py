"""Keeps figures over time in step with the launch on screen."""

from __future__ import annotations

from panel.client import Client
from panel.domain.errors import PanelError
from panel.domain.series import Series
from panel.domain.snapshot import LaunchView

EVERY_S = 2.0


class SeriesFeed:
    """Asks at most every two seconds of the launch's own time."""

    def __init__(self, client: Client, *prefixes: str, limit: int) -> None:
        """`limit`: moments, one a second, of the figures whose names begin with a prefix."""
        self._client = client
        self._prefixes = prefixes
        self._limit = limit
        self._asked: tuple[str, float] = ("", 0.0)
        self.series = Series()

    def due(self, launch: LaunchView) -> bool:
        """Return whether to pull; figures of another launch are forgotten."""
        uuid, t = self._asked
        if uuid != launch.uuid:
            self.series = Series()
            return True
        return launch.t - t >= EVERY_S

    async def pull(self, launch: LaunchView) -> bool:
        """Read them; return whether there were any. A failure is none: it is asked again."""
        self._asked = (launch.uuid, launch.t)
        try:
            found = await self._client.series(launch.id, self._prefixes, self._limit)
        except PanelError:
            return False
        if self._asked[0] != launch.uuid:
            return False
        self.series = found
        return bool(found.times)
