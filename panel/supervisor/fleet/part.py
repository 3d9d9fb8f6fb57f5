"""One node's part of the gang: its supervisor, its launch, the copy of its evidence."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import httpx
import msgspec

from panel import __version__
from panel.domain.errors import PanelError
from panel.domain.events import Event
from panel.domain.plan import Plan
from panel.domain.snapshot import Snapshot
from panel.domain.states import LaunchState
from panel.domain.wire import Accepted, Down, ErrorReply, Evidence, LogWindows, Up
from panel.engines.external import SOURCE
from panel.supervisor.evidence import Folder
from panel.supervisor.fleet.looks import Look, look_of
from panel.supervisor.fleet.mirror import Clock, Mirror, Place
from panel.supervisor.fleet.order import NodeOrder
from panel.supervisor.fleet.ssh import Forward, reach

T = TypeVar("T")

_ANSWER_S = 10.0
_ASKING_S = 180.0
"""For what may need the engine's flags, which may be asked of its parser first."""
_PULL_BYTES = 1 << 20
_FAR = 1 << 40
"""An offset behind all events."""


class LostError(Exception):
    """The node does not answer at the moment."""


class Part:
    """Belongs to the event loop that opens it."""

    def __init__(
        self, node: NodeOrder, place: Place, folder: Folder, since: Callable[[], float]
    ) -> None:
        """`since`: seconds since the gang's launch, now."""
        self.node = node
        self.number: int | None = None
        """Of its launch on the node; None before it was accepted."""
        self.state = LaunchState.LAUNCHING
        self.outcome = ""
        self.over = False
        """Nothing of it is left, and all of its evidence is here."""
        self.silent_since: float | None = None
        """Monotonic time since which it has not answered."""
        self._index = place.index
        self._mirror = Mirror(place)
        self._folder = folder
        self._since = since
        self._clock = Clock()
        self._events_end = 0
        self._log_end = 0
        self._noted = -1
        self.started = False
        """We have started its supervisor, which ends with the gang."""
        self._forward: Forward | None = None
        self._http: httpx.AsyncClient | None = None

    @property
    def trouble(self) -> str:
        """What ssh said last, while there is no way."""
        return self._forward.trouble if self._forward else ""

    async def open(self, socket: Path) -> None:
        """Find the way to its supervisor. Raises `PanelError`."""
        reached = await reach(self.node)
        self.started |= reached.started
        if reached.version != __version__:
            raise PanelError(
                f"node {self.node.name} has moepanel {reached.version}, here is {__version__}",
                "install the same version on all nodes",
            )
        self._forward = Forward(self.node, reached.socket, socket)
        await self._forward.open()
        transport = httpx.AsyncHTTPTransport(uds=str(self._forward.socket))
        self._http = httpx.AsyncClient(transport=transport, base_url="http://node")

    async def plan(self) -> Plan:
        """Return what the node says of its part. Raises `PanelError`."""
        body = Up(recipe=self.node.recipe or msgspec.UNSET)
        return await self._ask("POST", "/v1/plan?base=profile", Plan, body, _ASKING_S)

    async def up(self) -> None:
        """Launch. Raises `PanelError`."""
        body = Up(recipe=self.node.recipe or msgspec.UNSET)
        accepted = await self._ask("POST", "/v1/up", Accepted, body, _ASKING_S)
        self.number = accepted.launch

    async def down(self, now: bool) -> None:
        """Stop its part, as far as it can be reached."""
        if self.number is not None and not self.over:
            with contextlib.suppress(PanelError, LostError):
                await self._ask("POST", "/v1/down", Accepted, Down(now=now))

    async def lives(self) -> bool:
        """Return whether anything of its launch may exist. Raises `LostError`."""
        try:
            path = f"/v1/launches/{self.number}/evidence?offset={_FAR}"
            return (await self._ask("GET", path, Evidence)).live
        except PanelError:
            return False  # Another launch has its place.

    async def pull(self) -> list[Event]:
        """Copy what is new of its log; return its new events. Raises `LostError`."""
        assert self.number is not None
        asked = self._since()
        path = f"/v1/launches/{self.number}/evidence?offset={self._events_end}"
        try:
            news = await self._ask("GET", path, Evidence)
        except PanelError as error:
            raise LostError(str(error)) from None
        if news.live:
            self._clock.measure(asked, self._since(), news.t)
        await self._copy_log(whole=not news.live)
        self._events_end = news.end
        self.state, self.outcome = news.state, news.outcome
        self.over = not news.live and not news.events
        return list(self._mirror.read(news.events, self._clock.begun))

    async def look(self) -> Look:
        """Return what its supervisor sees of it now; nothing where it does not answer."""
        try:
            snapshot = await self._ask("GET", "/v1/snapshot", Snapshot)
        except (PanelError, LostError):
            return Look()
        return look_of(snapshot, self.number or 0, self._index)

    async def close(self) -> None:
        """Let the node go; a supervisor that we have started ends."""
        if self.started and self._http is not None:
            with contextlib.suppress(PanelError, LostError):
                await self._ask("POST", "/v1/shutdown", Accepted, Down())
        if self._http is not None:
            await self._http.aclose()
        if self._forward is not None:
            await self._forward.close()

    async def _copy_log(self, whole: bool) -> None:
        """Append what is new of the log, whole lines, and `whole` the last one too."""
        while True:
            at = f"{SOURCE}:{self._log_end}"
            path = f"/v1/launches/{self.number}/logs?at={at}&limit={_PULL_BYTES}"
            try:
                (window,) = (await self._ask("GET", path, LogWindows)).windows
            except (PanelError, ValueError):
                return  # There is none yet.
            data = window.text.encode()
            if not whole:
                data = data[: data.rfind(b"\n") + 1]
            if not data or window.offset != self._log_end:
                return
            end = self._log_end + len(data)
            self._note_times(window.times, end)
            with self._folder.log(self.node.name).open("ab") as file:
                file.write(data)
            self._log_end = end
            if end >= window.size or end < window.end:
                return

    def _note_times(self, times: tuple[tuple[float, int], ...], end: int) -> None:
        with self._folder.times(self.node.name).open("a") as file:
            for t, offset in times:
                at = max(offset, self._log_end)
                if self._noted < at < end:
                    self._noted = at
                    shifted = round(max(0.0, t + self._clock.begun), 6)
                    file.write(json.dumps({"t": shifted, "offset": at}) + "\n")

    async def _ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: msgspec.Struct | None = None,
        seconds: float = _ANSWER_S,
    ) -> T:
        assert self._http is not None
        content = None if body is None else msgspec.json.encode(body)
        patience = httpx.Timeout(seconds, connect=2.0)
        try:
            async with asyncio.timeout(seconds + 2.0):
                reply = await self._http.request(method, path, content=content, timeout=patience)
            if reply.is_error:
                told = msgspec.json.decode(reply.content, type=ErrorReply).error
                raise PanelError(f"node {self.node.name}: {told.message}", told.hint)
            answer = msgspec.json.decode(reply.content, type=kind)
        except (httpx.HTTPError, TimeoutError, msgspec.DecodeError) as error:
            if self.silent_since is None:
                self.silent_since = time.monotonic()
            raise LostError(self.trouble or str(error) or type(error).__name__) from None
        self.silent_since = None
        if self._forward is not None:
            self._forward.trouble = ""
        return answer
