"""The supervisor as the panel sees it: HTTP over its Unix socket, typed both ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeVar

import httpx
import msgspec

from panel.domain.errors import (
    BusyError,
    NotFoundError,
    PanelError,
    RefusedError,
    TimedOutError,
    UsageError,
)
from panel.domain.flags import Flag
from panel.domain.hang import HangView, Step
from panel.domain.notes import Note, Notes
from panel.domain.plan import Plan
from panel.domain.series import Series
from panel.domain.snapshot import Snapshot
from panel.domain.stacks import Stacks, TakeStacks
from panel.domain.wire import (
    Accepted,
    ApiError,
    Down,
    ErrorReply,
    Found,
    LaunchRecord,
    LogRecord,
    LogRecords,
    LogWindow,
    LogWindows,
    Moment,
    Relaunch,
    Up,
)
from panel.logs.files import ReplacedError
from panel.logs.query import Query

T = TypeVar("T")
At = int | Moment | Literal["tail"]

_CONNECT_S = 2.0
_ANSWER_S = 10.0
_SILENCE_S = 12.0
"""The supervisor says something every five seconds; two missed words and it counts as lost."""
_ASKING_S = 180.0
"""For what needs the engine's flags: the first time an engine is imported to ask its parser."""
_STEP_S = 30.0
"""For a step of a hang's ladder: a flight recorder may take 15 s to dump."""
_SWITCHES = ("literal", "ignore_case", "invert", "heads")
"""Of a search."""
_RETRY_S = (0.2, 0.5, 1.0, 2.0)
_KINDS: dict[str, type[PanelError]] = {
    kind.kind: kind
    for kind in (
        UsageError,
        BusyError,
        RefusedError,
        NotFoundError,
        TimedOutError,
        ReplacedError,
    )
}


class Lost(msgspec.Struct, frozen=True):
    """No supervisor answers at the moment."""

    reason: str


class Client:
    """Requests to one supervisor. Every failure is a `PanelError`."""

    def __init__(self, socket: Path, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._http = httpx.AsyncClient(
            transport=transport or httpx.AsyncHTTPTransport(uds=str(socket)),
            base_url="http://node",
            timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def snapshot(self) -> Snapshot:
        """Return the newest snapshot."""
        return await self._get("/v1/snapshot", Snapshot)

    async def events(self) -> AsyncIterator[Snapshot | Lost]:
        """Yield snapshots for ever, and `Lost` each time that the supervisor stops answering.

        Attaching again is attaching: a new supervisor counts from one, so no position is kept.
        """
        attempt = 0
        while True:
            try:
                async for snapshot in self._attached():
                    attempt = 0
                    yield snapshot
                reason = "it ended the connection"
            except (httpx.HTTPError, msgspec.DecodeError, PanelError) as error:
                reason = str(error) or type(error).__name__
            yield Lost(reason)
            await asyncio.sleep(_RETRY_S[min(attempt, len(_RETRY_S) - 1)])
            attempt += 1

    async def _attached(self) -> AsyncIterator[Snapshot]:
        patience = httpx.Timeout(_ANSWER_S, connect=_CONNECT_S, read=_SILENCE_S)
        request = self._http.stream("GET", "/v1/events", params={"since": 0}, timeout=patience)
        async with request as response:
            if response.is_error:
                await response.aread()
                raise _error(response)
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    yield msgspec.json.decode(line[5:], type=Snapshot)

    async def up(self, request: Up) -> Accepted:
        """Launch a profile."""
        return await self._post("/v1/up", request, Accepted, _ASKING_S)

    async def relaunch(self, request: Relaunch) -> Accepted:
        """Stop what runs, if anything, and launch; refused before anything is stopped."""
        return await self._post("/v1/relaunch", request, Accepted, _ASKING_S)

    async def down(self, request: Down) -> Accepted:
        """Stop the gang."""
        return await self._post("/v1/down", request, Accepted)

    async def shutdown(self, request: Down) -> Accepted:
        """Stop the gang, then the supervisor."""
        return await self._post("/v1/shutdown", request, Accepted)

    async def plan(self, request: Up | Relaunch) -> Plan:
        """Return what a launch would be: of a profile (`Up`), or from the last request."""
        base = "profile" if isinstance(request, Up) else "latest"
        return await self._post(f"/v1/plan?base={base}", request, Plan, _ASKING_S)

    async def flags(self, profile: str) -> list[Flag]:
        """Return every flag of a profile's engine."""
        return await self._get("/v1/flags", list[Flag], {"profile": profile}, _ASKING_S)

    async def launches(self, limit: int = 50) -> list[LaunchRecord]:
        """Return the ledger, newest launch first."""
        return await self._get("/v1/launches", list[LaunchRecord], {"limit": str(limit)})

    async def logs(self, launch: int, at: Mapping[str, At], limit: int) -> tuple[LogWindow, ...]:
        """Return a window of at most `limit` bytes of each source, from a place or of its end."""
        return (await self.log_windows(launch, at, limit)).windows

    async def log_windows(self, launch: int, at: Mapping[str, At], limit: int) -> LogWindows:
        """Return such windows, of the ends of all sources where none is named, and the launch."""
        params = [("at", f"{source}:{place}") for source, place in at.items()]
        query = httpx.QueryParams([*params, ("limit", str(limit))])
        return await self._get(f"/v1/launches/{launch}/logs", LogWindows, query)

    async def log_records(
        self, launch: int, places: Iterable[tuple[str, int]]
    ) -> tuple[LogRecord, ...]:
        """Return the records of the lines that begin at these offsets of sources."""
        query = httpx.QueryParams([("at", f"{source}:{offset}") for source, offset in places])
        return (await self._get(f"/v1/launches/{launch}/records", LogRecords, query)).records

    async def search(
        self, launch: int, query: Query, sources: Iterable[str] = (), *, follow: bool = False
    ) -> AsyncIterator[Found]:
        """Yield where lines are that match, newest pieces first; with `follow` also new ones."""
        params = [
            ("pattern", query.pattern),
            ("level", query.level.name.lower()),
            *((name, "1") for name in _SWITCHES if getattr(query, name)),
            *(("rank", str(rank)) for rank in query.ranks),
            *(("source", source) for source in sources),
            *((("follow", "1"),) if follow else ()),
        ]
        request = self._http.stream(
            "GET",
            f"/v1/launches/{launch}/search",
            params=httpx.QueryParams(params),
            # Nothing comes while a long log holds no hit, or does not grow.
            timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S, read=None),
        )
        try:
            async with request as response:
                if response.is_error:
                    await response.aread()
                    raise _error(response)
                async for line in response.aiter_lines():
                    found = msgspec.json.decode(line, type=Found)
                    if found.error is not None:
                        raise _told(found.error)
                    yield found
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            raise PanelError(f"the search broke off: {error or type(error).__name__}") from None

    async def stacks(self, launch: int, *, native: bool = False) -> Stacks:
        """Return the stacks of all its processes, taken now."""
        path, body = f"/v1/launches/{launch}/stacks", TakeStacks(native=native)
        return await self._post(path, body, Stacks)

    async def hang(self, launch: int) -> HangView:
        """Return the ladder against a hang as it stands."""
        return await self._get(f"/v1/launches/{launch}/hang", HangView)

    async def hang_step(self, launch: int, step: Step) -> HangView:
        """Do one step of the ladder."""
        path, patience = f"/v1/launches/{launch}/hang/{step}", httpx.Timeout(_STEP_S)
        request = self._http.build_request("POST", path, timeout=patience)
        return await self._ask(request, HangView)

    async def notes(self, launch: int) -> Notes:
        """Return what operators wrote about a launch."""
        return await self._get(f"/v1/launches/{launch}/notes", Notes)

    async def add_note(self, launch: int, text: str) -> Notes:
        """Write a note down; return all."""
        return await self._post(f"/v1/launches/{launch}/notes", Note(text=text), Notes)

    async def series(self, launch: int, names: Iterable[str] = (), limit: int = 600) -> Series:
        """Return the newest `limit` moments of the figures whose names begin so; none: of all."""
        query = httpx.QueryParams([*(("name", name) for name in names), ("limit", str(limit))])
        return await self._get(f"/v1/launches/{launch}/series", Series, query)

    async def _get(
        self,
        path: str,
        kind: type[T],
        params: Mapping[str, str] | httpx.QueryParams | None = None,
        seconds: float = _ANSWER_S,
    ) -> T:
        patience = httpx.Timeout(seconds, connect=_CONNECT_S)
        request = self._http.build_request("GET", path, params=params, timeout=patience)
        return await self._ask(request, kind)

    async def _post(
        self, path: str, body: msgspec.Struct, kind: type[T], seconds: float = _ANSWER_S
    ) -> T:
        content = msgspec.json.encode(body)
        headers = {"content-type": "application/json"}
        patience = httpx.Timeout(seconds, connect=_CONNECT_S)
        request = self._http.build_request(
            "POST", path, content=content, headers=headers, timeout=patience
        )
        return await self._ask(request, kind)

    async def _ask(self, request: httpx.Request, kind: type[T]) -> T:
        try:
            response = await self._http.send(request)
        except httpx.TimeoutException:
            seconds = request.extensions["timeout"]["read"]
            raise PanelError(
                f"the supervisor did not answer in {seconds:g} s", "see its log"
            ) from None
        except httpx.HTTPError as error:
            raise NotFoundError(
                f"no supervisor answers: {error}", "moepanel starts one; a running engine goes on"
            ) from None
        if response.is_error:
            raise _error(response)
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.DecodeError as error:
            raise PanelError(
                f"the supervisor's answer is not understood: {error}",
                "it is of another version: restart it with moepanel shutdown",
            ) from None


def _error(response: httpx.Response) -> PanelError:
    try:
        told = msgspec.json.decode(response.content, type=ErrorReply).error
    except msgspec.DecodeError:
        told = ApiError(kind="failed", message=f"the supervisor answered {response.status_code}")
    return _told(told)


def _told(told: ApiError) -> PanelError:
    return _KINDS.get(told.kind, PanelError)(told.message, told.hint)
