"""The lines that a filter lets through: places from its search, records as they are looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from panel.client import Client
from panel.domain.errors import PanelError
from panel.domain.wire import LogRecord
from panel.logs.records import Level, Record
from panel.widgets.log_hits import Hits
from panel.widgets.log_model import Place
from panel.widgets.log_rows import LogRows

_PAGE = 300
"""Lines read at once."""
_MOST = 4000
"""Lines held."""
_ASKED = 500
"""Lines of one request."""


class FoundFeed:
    """Holds a run of neighbouring hits."""

    def __init__(self, client: Client, launch: int, rows: LogRows, hits: Hits) -> None:
        self._client, self._launch = client, launch
        self.hits = hits
        self._turn = asyncio.Lock()
        self._places: list[Place] = []
        self._read: dict[tuple[str, int], list[Record]] = {}
        self.rows = rows
        self.trouble = ""

    @property
    def behind(self) -> int:
        """Nothing: the badge counts rows."""
        return 0

    async def pull(self, *, holding: bool) -> bool:
        """Hold the newest hits; while somebody looks, all between the first and last held, since
        a search that is not through may still find some there."""
        if not holding or not self._places:
            return await self.end()
        first, last = self._places[0], self._places[-1]
        between = self.hits.after((*first[:2], first[2] - 1), _MOST)
        return await self._show([place for place in between if place <= last])

    async def older(self) -> bool:
        """Hold older hits too."""
        more = self.hits.before(self._places[0], _PAGE) if self._places else []
        return bool(more) and await self._show([*more, *self._places][:_MOST])

    async def newer(self) -> bool:
        """Hold newer hits too."""
        more = self.hits.after(self._places[-1], _PAGE) if self._places else []
        return bool(more) and await self._show([*self._places, *more][-_MOST:])

    async def jump(self, place: Place) -> bool:
        """Hold the hits around a place."""
        before = self.hits.before(place, _PAGE)
        return await self._show([*before, *self.hits.after((*place[:2], place[2] - 1), _PAGE)])

    async def home(self) -> bool:
        """Hold the oldest hits."""
        return await self._show(self.hits.after(None, _PAGE))

    async def end(self) -> bool:
        """Hold the newest hits."""
        return await self._show(self.hits.before(None, _PAGE))

    async def _show(self, places: list[Place]) -> bool:
        """Hold these hits; return whether that is a change."""
        async with self._turn:
            if places == self._places:
                return False
            missing = [at for place in places if (at := place[1:]) not in self._read]
            try:
                for start in range(0, len(missing), _ASKED):
                    asked = missing[start : start + _ASKED]
                    self._take(await self._client.log_records(self._launch, asked))
            except PanelError as error:
                self.trouble = str(error)
                return False
            self.trouble, self._places = "", places
            held = {place[1:] for place in places}
            self._read = {at: records for at, records in self._read.items() if at in held}
            self.rows.show([r for place in places for r in self._read.get(place[1:], ())])
            return True

    def _take(self, told: Iterable[LogRecord]) -> None:
        for one in told:
            record = Record(
                source=one.source, rank=one.rank, t=one.t, printed=None, level=Level(one.level),
                prefix=one.prefix, text=one.text, offset=one.offset, phase=None, part=one.part,
                pid=one.pid,
            )  # fmt: skip
            self._read.setdefault((one.source, one.offset), []).append(record)
