"""Keeps a log model in step with the logs of one launch, and its rows with the model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from panel.client import At, Client
from panel.domain.errors import PanelError
from panel.domain.wire import LogWindow, Moment
from panel.widgets.log_model import LogModel, Picked, Place
from panel.widgets.log_rows import LogRows
from panel.widgets.log_times import Epoch

PAUSE_S = 0.25
"""Least time between two looks at what grew: paints over SSH have a price."""
_GROWTH = 64 << 10
"""Bytes of a source read at once; what grows faster is followed by its tail alone."""
_STORM_TAIL = 16 << 10
_CHUNK = 64 << 10
_MOST_STEPS = 16


class Feed(Protocol):
    """Where rows come from: all lines, or those that a filter lets through."""

    rows: LogRows
    trouble: str
    """Why nothing could be read."""

    async def pull(self, *, holding: bool) -> bool:
        """Read what is new at the end; return whether anything was. `holding`: somebody looks at
        old rows, which must stay."""

    async def older(self) -> bool:
        """Read what lies before the rows held; return whether there was anything."""

    async def newer(self) -> bool:
        """Read what lies behind the rows held; return whether there was anything."""

    async def jump(self, place: Place) -> bool:
        """Hold the rows around a place; return whether they could be read."""

    async def home(self) -> bool:
        """Hold the oldest rows; return whether they could be read."""

    async def end(self) -> bool:
        """Hold the newest rows; return whether they could be read."""

    @property
    def behind(self) -> int:
        """Bytes behind what is held."""


class KeepUp:
    """Pulls as long as there is anything new, one pull at a time and a few a second."""

    def __init__(self) -> None:
        self._busy = self._again = False

    async def run(
        self, feed: Callable[[], Feed], holding: Callable[[], bool], changed: Callable[[], None]
    ) -> None:
        """Call `changed` after each pull that brought something; where another call does it, that
        one looks once more."""
        self._again = True
        if self._busy:
            return
        self._busy = True
        try:
            while self._again:
                self._again = False
                if await feed().pull(holding=holding()):
                    self._again = True
                    changed()
                    await asyncio.sleep(PAUSE_S)
        finally:
            self._busy = False


class LogFeed:
    """All lines of the launch that `turn_to` names."""

    def __init__(self, client: Client, tail: int, *, folds: bool = False) -> None:
        """`tail`: bytes of each source to begin with."""
        self._client = client
        self._tail = tail
        self._turn = asyncio.Lock()
        self._sizes: Mapping[str, int] = {}
        self._uuid = ""
        self.launch = 0
        self.model = LogModel()
        self.rows = LogRows(folds=folds)
        self.epoch = Epoch()
        self.folder = ""
        """Path of the evidence on the node."""
        self.trouble = ""
        """Why nothing could be read."""
        self.idle = False
        """Another feed fills the rows."""

    def turn_to(self, launch: int, uuid: str) -> bool:
        """Return whether this is another launch than before; nothing of it is held then."""
        if uuid == self._uuid:
            return False
        self._uuid, self.launch = uuid, launch
        self._sizes, self.epoch, self.trouble = {}, Epoch(), ""
        self.model.clear()
        self.rows.opened.clear()
        self.rows.show([])
        return True

    def grown(self, sizes: Mapping[str, int]) -> None:
        """Take note of how long the logs are now."""
        self._sizes = sizes
        self.model.grown(sizes)

    def pick(self, picked: Picked) -> None:
        """Show these ranks and sources only; none shows all."""
        self.model.picked = self.rows.picked = picked
        self.show(again=True)

    @property
    def behind(self) -> int:
        """Bytes behind what is held."""
        return self.model.behind

    async def pull(self, *, holding: bool) -> bool:
        """Read what is new at the end."""
        async with self._turn:
            if self.model.empty:
                # Without sizes it is an earlier launch: whatever logs there are.
                return await self._read(dict.fromkeys(self._sizes, "tail"), self._tail)
            wanted = self.model.wanted(self._sizes, _GROWTH)
            storm = "tail" in wanted.values()
            if holding and (storm or self.model.full):
                return False
            return bool(wanted) and await self._read(wanted, _STORM_TAIL if storm else _GROWTH)

    async def older(self) -> bool:
        """Read what lies before the rows held."""
        async with self._turn:
            # A window begins where its first line does: asked for as much again, it reaches ours.
            wanted = self.model.older(_CHUNK)
            return bool(wanted) and await self._read(wanted, 2 * _CHUNK, self.model.prepend)

    async def newer(self) -> bool:
        """Read what lies behind the rows held."""
        async with self._turn:
            wanted = self.model.newer()
            return bool(wanted) and await self._read(wanted, _CHUNK)

    async def jump(self, place: Place) -> bool:
        """Hold the rows around a place."""
        t, source, offset = place
        at: dict[str, At] = dict.fromkeys(self._names, Moment(t))
        if source:
            at[source] = offset
        if not await self._begin(at):
            return False
        await self.older()
        for _ in range(_MOST_STEPS):
            held = self.model.complete
            if held and (held[-1].t, held[-1].source, held[-1].offset) >= place:
                break
            if not await self.newer():
                break
        return True

    async def home(self) -> bool:
        """Hold the oldest rows."""
        return await self._begin(dict.fromkeys(self._names, 0))

    async def end(self) -> bool:
        """Hold the newest rows."""
        if not self.model.behind:
            return True
        return await self._begin(dict.fromkeys(self._names, "tail"), _STORM_TAIL)

    @property
    def _names(self) -> list[str]:
        return sorted({*self._sizes, *self.model.names})

    async def _begin(self, at: Mapping[str, At], limit: int = _CHUNK) -> bool:
        async with self._turn:
            return await self._read(at, limit, self._replace)

    def _replace(self, windows: tuple[LogWindow, ...]) -> None:
        self.model.clear()
        self.model.add(windows)
        self.model.grown(self._sizes or {w.source: w.size for w in windows})

    async def _read(
        self,
        at: Mapping[str, At],
        limit: int,
        take: Callable[[tuple[LogWindow, ...]], None] | None = None,
    ) -> bool:
        """Read windows; a failure is kept in words, and the next look asks again."""
        uuid = self._uuid
        try:
            told = await self._client.log_windows(self.launch, at, limit)
        except PanelError as error:
            self.trouble = str(error)
            return False
        if uuid != self._uuid:
            return False
        self.trouble = ""
        self.epoch = Epoch(told.t0_unix, told.crash_t)
        self.folder = told.folder
        (take or self.model.add)(told.windows)
        grew = self.rows.world != told.world_size
        self.rows.world = told.world_size
        self.show(again=grew)
        return bool(told.windows)

    def show(self, *, again: bool = False) -> None:
        """Show what is held, unless another feed fills the rows; `again`: made anew."""
        if not self.idle:
            self.rows.show(self.model.complete)
        if again:
            self.rows.again()
