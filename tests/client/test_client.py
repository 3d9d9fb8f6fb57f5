"""The client of the supervisor, over a real Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

import panel.client as client_module
from panel.client import Client, Lost
from panel.domain.errors import BusyError, NotFoundError, PanelError, RefusedError, UsageError
from panel.domain.flags import Request
from panel.domain.hang import HangView
from panel.domain.plan import Plan
from panel.domain.series import Series
from panel.domain.snapshot import Host, Snapshot, Supervisor
from panel.domain.stacks import Stacks
from panel.domain.wire import (
    Accepted,
    ApiError,
    Down,
    ErrorReply,
    Found,
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
from panel.logs.records import Level
from tests.client.served import served

Handler = Callable[[HttpRequest], Awaitable[Response]]


def snapshot(seq: int) -> Snapshot:
    return Snapshot(
        seq=seq,
        supervisor=Supervisor(pid=1, version="0", started_unix=0.0, home="/h", socket="/s"),
        host=Host(name="n", cpus=1, load=0.0, memory_total=1, memory_available=1, gpu_note=""),
    )


def answering(body: object, status: int = 200) -> Handler:
    async def handle(request: HttpRequest) -> Response:
        return Response(msgspec.json.encode(body), status, media_type="application/json")

    return handle


def node(**routes: Handler) -> Starlette:
    """Return an application; `GET_v1_snapshot` names `GET /v1/snapshot`."""
    made = []
    for name, handler in routes.items():
        method, *parts = name.split("_")
        made.append(Route("/" + "/".join(parts), handler, methods=[method]))
    return Starlette(routes=made)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    made = Client(tmp_path / "s.sock")
    yield made
    await made.close()


@asynccontextmanager
async def running(tmp_path: Path, **routes: Handler) -> AsyncIterator[None]:
    async with served(node(**routes), uds=str(tmp_path / "s.sock")):
        yield


async def test_requests_are_typed_both_ways(client: Client, tmp_path: Path) -> None:
    got: list[tuple[str, bytes]] = []
    plan = Plan(request=Request(profile="tiny"), engine="builtin", version="0", world_size=8,
                flags=(), argv=())  # fmt: skip

    def kept(body: object, status: int = 200) -> Handler:
        async def handle(request: HttpRequest) -> Response:
            got.append((str(request.url.query), await request.body()))
            return await answering(body, status)(request)

        return handle

    routes = {
        "GET_v1_snapshot": kept(snapshot(4)), "POST_v1_plan": kept(plan),
        "POST_v1_up": kept(Accepted(launch=1), 202),
        "POST_v1_relaunch": kept(Accepted(launch=2), 202),
        "POST_v1_down": kept(Accepted(launch=2), 202),
        "POST_v1_shutdown": kept(Accepted(launch=None)),
        "GET_v1_flags": kept([]), "GET_v1_launches": kept([]),
    }  # fmt: skip
    async with running(tmp_path, **routes):
        assert await client.snapshot() == snapshot(4)
        assert await client.plan(Up(profile="tiny")) == plan
        assert await client.plan(Relaunch(set={"ep": "on"})) == plan
        assert await client.up(Up()) == Accepted(launch=1)
        assert await client.relaunch(Relaunch(unset=("seed",))) == Accepted(launch=2)
        assert await client.down(Down(now=True)) == Accepted(launch=2)
        assert await client.shutdown(Down()) == Accepted(launch=None)
        assert await client.flags("tiny") == []
        assert await client.launches(7) == []
    queries = [query for query, _ in got]
    assert queries == [
        "",
        "base=profile",
        "base=latest",
        "",
        "",
        "",
        "",
        "profile=tiny",
        "limit=7",
    ]
    assert msgspec.json.decode(got[2][1], type=Relaunch) == Relaunch(set={"ep": "on"})
    assert msgspec.json.decode(got[5][1], type=Down) == Down(now=True)


async def test_windows_are_asked_for_by_source(client: Client, tmp_path: Path) -> None:
    window = LogWindow(source="rank-1", offset=0, end=2, size=2, text="a\n")
    asked: list[list[str]] = []

    async def handle(request: HttpRequest) -> Response:
        asked.append([*request.query_params.getlist("at"), request.query_params["limit"]])
        return await answering(LogWindows(windows=(window,)))(request)

    async with running(tmp_path, GET_v1_launches_17_logs=handle):
        places = {"rank-1": "tail", "rank-0": 12, "rank-2": Moment(1.25)}
        assert await client.logs(17, places, 4096) == (window,)
    assert asked == [["rank-1:tail", "rank-0:12", "rank-2:@1.250", "4096"]]


async def test_a_search_is_a_stream_that_may_end_in_an_error(
    client: Client, tmp_path: Path
) -> None:
    asked: list[list[tuple[str, str]]] = []
    told = [Found(source="rank-1", end=9, count=1, offsets=(4,), left=5),
            Found(error=ApiError(kind="replaced", message="rank-1 was replaced"))]  # fmt: skip

    async def handle(request: HttpRequest) -> Response:
        asked.append(request.query_params.multi_items())
        return Response(msgspec.json.Encoder().encode_lines(told))

    query = Query("a b", invert=True, level=Level.WARNING, ranks=(1, 2))
    async with running(tmp_path, GET_v1_launches_17_search=handle):
        search = client.search(17, query, ("frontend",), follow=True)
        assert await anext(search) == told[0]
        with pytest.raises(ReplacedError, match="was replaced"):
            await anext(search)
    assert asked == [[
        ("pattern", "a b"), ("level", "warning"), ("invert", "1"), ("rank", "1"), ("rank", "2"),
        ("source", "frontend"), ("follow", "1"),
    ]]  # fmt: skip


async def test_a_search_that_cannot_begin_or_go_on(client: Client, tmp_path: Path) -> None:
    reply = ErrorReply(error=ApiError(kind="usage", message="no regular expression"))
    async with running(tmp_path, GET_v1_launches_17_search=answering(reply, 400)):
        with pytest.raises(UsageError, match="no regular expression"):
            await anext(client.search(17, Query("(")))
    with pytest.raises(PanelError, match="broke off"):
        await anext(client.search(17, Query("a")))


async def test_records_are_asked_for_by_place(client: Client, tmp_path: Path) -> None:
    record = LogRecord("rank-1", 7, 0, 1.5, 1, 20, "[x] ", "text")
    asked: list[list[str]] = []

    async def handle(request: HttpRequest) -> Response:
        asked.append(request.query_params.getlist("at"))
        return await answering(LogRecords(records=(record,)))(request)

    async with running(tmp_path, GET_v1_launches_17_records=handle):
        assert await client.log_records(17, [("rank-1", 7), ("a b", 0)]) == (record,)
    assert asked == [["rank-1:7", "a b:0"]]


@pytest.mark.parametrize(
    ("kind", "raised"),
    [("busy", BusyError), ("usage", UsageError), ("refused", RefusedError),
     ("not_found", NotFoundError), ("of a newer version", PanelError)],
)  # fmt: skip
async def test_errors_arrive_as_what_they_are(
    client: Client, tmp_path: Path, kind: str, raised: type[PanelError]
) -> None:
    reply = ErrorReply(error=ApiError(kind=kind, message="no [such] thing", hint="do that"))
    async with running(tmp_path, POST_v1_up=answering(reply, 409)):
        with pytest.raises(raised, match=r"no \[such\] thing \(do that\)") as caught:
            await client.up(Up())
    assert type(caught.value) is raised


async def test_what_is_not_understood_is_an_error_too(client: Client, tmp_path: Path) -> None:
    async def html(request: HttpRequest) -> Response:
        return Response("<html>", 502)

    async with running(tmp_path, GET_v1_snapshot=answering({"seq": "x"}), POST_v1_up=html):
        with pytest.raises(PanelError, match="not understood"):
            await client.snapshot()
        with pytest.raises(PanelError, match="502"):
            await client.up(Up())


async def test_no_supervisor_is_not_found(client: Client) -> None:
    with pytest.raises(NotFoundError, match="no supervisor answers"):
        await client.snapshot()


def streaming(*sequences: int, then: Callable[[], Awaitable[None]] | None = None) -> Handler:
    async def lines() -> AsyncIterator[bytes]:
        yield b": hello\n\n"
        for seq in sequences:
            data = msgspec.json.encode(snapshot(seq))
            yield b"event: snapshot\nid: %d\ndata: " % seq + data + b"\n\n"
        if then:
            await then()

    async def handle(request: HttpRequest) -> Response:
        assert request.query_params["since"] == "0"
        return StreamingResponse(lines(), media_type="text/event-stream")

    return handle


async def never() -> None:
    await asyncio.Event().wait()


async def test_attaching_again_is_attaching(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_RETRY_S", (0.01,))
    words = client.events()

    async def next_snapshot() -> Snapshot:
        async for word in words:
            if isinstance(word, Snapshot):
                return word
        raise AssertionError

    async with asyncio.timeout(10):
        assert isinstance(await anext(words), Lost)
        async with running(tmp_path, GET_v1_events=streaming(5, 6, then=never)):
            assert (await next_snapshot()).seq == 5
            assert (await anext(words)) == snapshot(6)
        assert isinstance(await anext(words), Lost)
        async with running(tmp_path, GET_v1_events=streaming(1, then=never)):
            assert (await next_snapshot()).seq == 1
        await words.aclose()  # type: ignore[attr-defined]


async def test_a_silent_supervisor_is_lost(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_SILENCE_S", 0.1)
    words = client.events()
    async with asyncio.timeout(10), running(tmp_path, GET_v1_events=streaming(5, then=never)):
        assert await anext(words) == snapshot(5)
        assert isinstance(await anext(words), Lost)
        await words.aclose()  # type: ignore[attr-defined]


async def test_an_answer_that_is_no_event_stream_is_lost(client: Client, tmp_path: Path) -> None:
    reply = ErrorReply(error=ApiError(kind="failed", message="it is ending"))
    words = client.events()
    async with running(tmp_path, GET_v1_events=answering(reply, 503)):
        assert await anext(words) == Lost("it is ending")
    await words.aclose()  # type: ignore[attr-defined]


async def test_looks_into_a_running_launch(client: Client, tmp_path: Path) -> None:
    got: list[tuple[str, bytes]] = []
    figures = Series(times=(1.0,), values={"engine.tok_s": (412.0,)})
    found = Stacks(t=1.0, reason="asked", native=True, groups=(), processes=())
    ladder = HangView(launch=17, suspicion=None, rungs=())

    def kept(body: object) -> Handler:
        async def handle(request: HttpRequest) -> Response:
            got.append((str(request.url.query), await request.body()))
            return await answering(body)(request)

        return handle

    async with running(
        tmp_path,
        GET_v1_launches_17_series=kept(figures),
        POST_v1_launches_17_stacks=kept(found),
        GET_v1_launches_17_hang=kept(ladder),
        POST_v1_launches_17_hang_ras=kept(ladder),
    ):
        assert await client.series(17, ("engine.", "gpu"), 60) == figures
        assert await client.stacks(17, native=True) == found
        assert await client.hang(17) == ladder
        assert await client.hang_step(17, "ras") == ladder
    assert got == [("name=engine.&name=gpu&limit=60", b""), ("", b'{"native":true}'), ("", b""),
                   ("", b"")]  # fmt: skip


async def test_a_step_of_the_ladder_may_take_longer(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(request: HttpRequest) -> Response:
        await asyncio.sleep(10)
        raise AssertionError

    monkeypatch.setattr(client_module, "_STEP_S", 0.05)
    async with running(tmp_path, POST_v1_launches_17_hang_look=silent):
        with pytest.raises(PanelError, match=r"did not answer in 0\.05 s"):
            await client.hang_step(17, "look")
