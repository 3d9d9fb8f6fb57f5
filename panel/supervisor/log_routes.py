"""The part of the HTTP API that reads logs."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from panel.domain.errors import NotFoundError, PanelError, UsageError
from panel.domain.wire import LogRecord, LogRecords, LogWindow, LogWindows, Moment
from panel.logs.query import Query
from panel.logs.records import Level, rank_of
from panel.supervisor.evidence import Folder, LaunchSpec, read_json, verdict_of
from panel.supervisor.node import Node
from panel.supervisor.search import MOST_LISTED, Hunt, Span, stream
from panel.supervisor.sources import Manner, Source, Sources
from panel.supervisor.windows import At, read_records, read_window, unreadable

MOST_RECORDS = 1000
_DEFAULT_WINDOW = 1 << 16


class _Launch(NamedTuple):
    folder: Folder
    spec: LaunchSpec


class LogRoutes:
    """One method a route."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._sources = Sources()

    def routes(self) -> list[Route]:
        """Return the table."""
        launch = "/v1/launches/{id:int}"
        return [
            Route(f"{launch}/logs", self.logs),
            Route(f"{launch}/records", self.records),
            Route(f"{launch}/search", self.search),
        ]

    async def logs(self, request: Request) -> Response:
        """Windows into logs; of all, their ends, where none is named."""
        launch = self._launch(request)
        limit = _number(request.query_params, "limit", _DEFAULT_WINDOW)
        places = [_place(text) for text in request.query_params.getlist("at")]

        def read() -> LogWindows:
            there = self._sources.there(launch.folder, launch.spec.sources)
            wanted = places or [(name, None) for name in there]
            verdict = verdict_of(launch.folder)
            return LogWindows(
                windows=tuple(self._window(launch, name, at, limit) for name, at in wanted),
                world_size=launch.spec.world_size,
                t0_unix=launch.spec.t0_unix,
                crash_t=verdict.t_first if verdict and verdict.failed else None,
                folder=str(launch.folder.path),
            )

        return _json(await asyncio.to_thread(read))

    async def records(self, request: Request) -> Response:
        """The records of lines."""
        launch = self._launch(request)
        by_name: dict[str, set[int]] = defaultdict(set)
        for text in request.query_params.getlist("at")[:MOST_RECORDS]:
            name, at = _place(text)
            if not isinstance(at, int):
                raise UsageError(f"at={text!r}", "write at=SOURCE:OFFSET")
            by_name[name].add(at)

        def read() -> Iterator[LogRecord]:
            for name, offsets in by_name.items():
                yield from read_records(*self._source(launch, name), sorted(offsets))

        found = await asyncio.to_thread(lambda: tuple(read()))
        return _json(LogRecords(records=found))

    async def search(self, request: Request) -> Response:
        """Where lines are that match; the stream goes on while the launch does, if asked to."""
        launch, params = self._launch(request), request.query_params
        query, names = self._chosen(launch, params)
        query.compile()
        follows = params.get("follow") == "1"
        hunt = Hunt(
            await asyncio.to_thread(lambda: [self._source(launch, name) for name in names]),
            query,
            Span(_seconds(params, "since"), _seconds(params, "until")),
            min(_number(params, "limit", MOST_LISTED), MOST_LISTED),
            follows=follows,
        )
        lines = stream(hunt, (lambda: self._node.publisher.closed) if follows else None)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    def _chosen(self, launch: _Launch, params: QueryParams) -> tuple[Query, list[str]]:
        """Return what is searched, and in which sources: where each rank has its own, in theirs."""
        named = params.getlist("source")
        for name in named:
            _refuse_path(name)
        ranks = tuple(_whole(text, "rank") for text in params.getlist("rank"))
        names = sorted(launch.spec.sources)
        if any(rank_of(name) is not None for name in names):
            if named or ranks:
                names = [name for name in names if name in named or rank_of(name) in ranks]
            ranks = ()
        elif named:
            names = [name for name in names if name in named]
        return _query(params, ranks), names

    def _launch(self, request: Request) -> _Launch:
        number = request.path_params["id"]
        folder = Folder(self._node.home.launch(number))
        spec = read_json(folder.launch, LaunchSpec)
        if spec is None:
            raise NotFoundError(f"launch {number} has no evidence", f"expected {folder.launch}")
        return _Launch(folder, spec)

    def _source(self, launch: _Launch, name: str) -> tuple[Source, Manner]:
        source = self._sources.find(launch.folder, launch.spec.engine, name)
        return source, self._sources.manner(source)

    def _window(self, launch: _Launch, name: str, at: At, limit: int) -> LogWindow:
        try:
            source, manner = self._source(launch, name)
        except PanelError as error:
            return unreadable(name, str(error))
        return read_window(source, manner, at, limit)


def _query(params: QueryParams, ranks: tuple[int, ...]) -> Query:
    level = params.get("level", "debug").upper()
    if level not in Level.__members__:
        raise UsageError(f"there is no level {level!r}", ", ".join(Level.__members__).lower())
    return Query(
        pattern=params.get("pattern", ""),
        literal=params.get("literal") == "1",
        ignore_case=params.get("ignore_case") == "1",
        invert=params.get("invert") == "1" and bool(params.get("pattern")),
        heads=params.get("heads") == "1",
        level=Level[level],
        ranks=ranks,
    )


def _number(params: QueryParams, name: str, default: int) -> int:
    text = params.get(name)
    return default if text is None else _whole(text, name)


def _whole(text: str, name: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"{name}={text!r} is not a whole number")
    return int(text)


def _seconds(params: QueryParams, name: str) -> float | None:
    text = params.get(name)
    try:
        return None if text is None else float(text)
    except ValueError:
        raise UsageError(f"{name}={text!r}", "write seconds since launch, such as 12.5") from None


def _place(text: str) -> tuple[str, At]:
    source, _, at = text.rpartition(":")
    time = at.removeprefix("@")
    moment = time != at and time.replace(".", "", 1).isdecimal()
    if not source or not (at == "tail" or at.isdecimal() or moment):
        raise UsageError(f"at={text!r}", "write at=SOURCE:OFFSET, SOURCE:@SECONDS or SOURCE:tail")
    _refuse_path(source)
    return source, None if at == "tail" else Moment(float(time)) if moment else int(at)


def _refuse_path(source: str) -> None:
    if "/" in source:
        raise UsageError(f"{source!r} is no source", "such as rank-0 or frontend")


def _json(value: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
