"""The HTTP API's reading half."""

from __future__ import annotations

import httpx
import msgspec
import psutil
import pytest

from panel.domain.flags import Flag
from panel.domain.plan import Plan
from panel.domain.snapshot import Snapshot
from panel.domain.states import LaunchState
from panel.domain.wire import ErrorReply, Found, LaunchRecord, LogRecords, LogWindows
from tests.supervisor.support import Supervised, wait_for


def test_snapshot_before_any_launch(node: Supervised) -> None:
    snapshot = node.snapshot()

    assert snapshot.launch is None
    assert "tiny" in [profile.name for profile in snapshot.profiles]
    assert snapshot.host.cpus >= 1
    assert snapshot.supervisor.home == str(node.home.state)


def test_events_bring_each_change_in_order(node: Supervised, free_port: int) -> None:
    seen: list[Snapshot] = []
    with node.http.stream("GET", "/v1/events?since=0") as stream:
        node.post("/v1/up", set={"tp-size": "2", "port": str(free_port)})
        for line in stream.iter_lines():
            if line.startswith("data: "):
                seen.append(msgspec.json.decode(line[6:], type=Snapshot))
                launch = seen[-1].launch
                if launch and launch.state is LaunchState.SERVING:
                    break

    numbers = [snapshot.seq for snapshot in seen]
    assert numbers == sorted(set(numbers))
    assert {each.launch.state for each in seen if each.launch} >= {LaunchState.LAUNCHING}


def test_profile_written_while_it_runs_is_shown(node: Supervised) -> None:
    since = node.snapshot().seq
    (node.home.profiles / "mine.toml").write_text('engine = "builtin"\n[flags]\nep-size = 2\n')

    with node.http.stream("GET", f"/v1/events?since={since}") as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                snapshot = msgspec.json.decode(line[6:], type=Snapshot)
                if "mine" in [profile.name for profile in snapshot.profiles]:
                    return
    pytest.fail("the stream ended")


def test_flags_are_the_engines(node: Supervised) -> None:
    flags = {flag.name: flag for flag in node.get("/v1/flags?profile=tiny", list[Flag])}

    assert flags["ep-size"].toggle == "ep"
    assert flags["disable-cuda-graph"].default == "false"


def test_plan_launches_nothing(node: Supervised, free_port: int) -> None:
    flags = {"graphs": "1,2,64", "api-key": "hush-hush", "port": str(free_port)}
    reply = node.http.post("/v1/plan", json={"set": flags})
    plan = msgspec.json.decode(reply.content, type=Plan)

    assert plan.chips == ("tp8", "graphs≤2")
    assert [problem.severity for problem in plan.problems] == ["warning"]
    assert "hush" not in reply.text
    assert node.snapshot().launch is None


def test_secrets_are_in_no_answer_and_no_file_of_ours(node: Supervised, free_port: int) -> None:
    view = node.up(port=free_port, **{"api-key": "hush-hush-hush"})

    assert view.flags["api-key"] == "***"
    folder = node.home.launch(view.id)
    assert "hush" not in (folder / "launch.json").read_text()
    assert "hush" not in node.http.get("/v1/launches").text
    # The supervisor itself still knows it: a relaunch keeps the key.
    number = node.post("/v1/relaunch")["launch"]
    again = node.wait_launch(number, LaunchState.SERVING)
    assert again.request.set["api-key"] == "***"


def test_ledger_lists_newest_first(node: Supervised, free_port: int) -> None:
    node.up(port=free_port)
    node.wait_launch(node.post("/v1/relaunch")["launch"], LaunchState.SERVING)

    assert [each.id for each in node.get("/v1/launches?limit=5", list[LaunchRecord])] == [2, 1]
    assert [each.id for each in node.get("/v1/launches?limit=1", list[LaunchRecord])] == [2]


def test_log_windows_and_search(node: Supervised, free_port: int) -> None:
    view = node.up(port=free_port)
    data = (node.home.launch(view.id) / "rank-1.log").read_bytes()

    windows = node.get("/v1/launches/1/logs?at=rank-1:0&at=rank-0:tail&limit=100", LogWindows)

    first, last = windows.windows
    assert data.startswith(first.text.encode())
    assert first.text.endswith("\n")
    assert (first.offset, first.end) == (0, len(first.text.encode()))
    assert last.end == last.size
    assert last.text.endswith("in serving\n")
    assert all(offset <= first.end for _, offset in first.times)
    lines = node.http.get("/v1/launches/1/search?pattern=IN KV_CACHE&ignore_case=1").text
    found = [msgspec.json.decode(line, type=Found) for line in lines.splitlines()]
    (offset,) = next(piece.offsets for piece in found if piece.source == "rank-1" and piece.count)
    (record,) = node.get(f"/v1/launches/1/records?at=rank-1:{offset}", LogRecords).records
    assert (record.rank, record.offset) == (1, offset)
    assert data[offset:].startswith((record.prefix + record.text).encode())
    assert "in kv_cache" in record.text
    assert (found[-1].left, found[-1].error) == (0, None)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/launches/7", 404),
        ("GET", "/v1/launches/7/logs", 404),
        ("GET", "/v1/nothing", 404),
        ("POST", "/v1/snapshot", 405),
        ("GET", "/v1/events?since=now", 400),
        ("GET", "/v1/flags?profile=none", 404),
        ("POST", "/v1/plan?base=first", 400),
        ("POST", "/v1/up", 404),
        ("GET", "/v1/launches/7/search?pattern=a", 404),
    ],
)
def test_errors_have_one_form(node: Supervised, method: str, path: str, status: int) -> None:
    content = b'{"profile": "none"}' if path == "/v1/up" else None
    reply = node.http.request(method, path, content=content)

    assert reply.status_code == status
    error = msgspec.json.decode(reply.content, type=ErrorReply).error
    assert error.message
    assert error.exit in (2, 3)


def test_body_that_is_no_json_is_usage(node: Supervised) -> None:
    reply = node.http.post("/v1/up", content=b"{")

    assert reply.status_code == 400
    assert "body" in reply.json()["error"]["message"]


def test_what_is_asked_of_logs_is_checked(node: Supervised, free_port: int) -> None:
    node.up(port=free_port)

    for path in (
        "/v1/launches/1/logs?at=../../supervisor:0",
        "/v1/launches/1/records?at=../../supervisor:0",
        "/v1/launches/1/search?pattern=a&source=../x",
        "/v1/launches/1/search?pattern=(a",
        "/v1/launches/1/search?level=loud",
        "/v1/launches/1/search?rank=x",
        "/v1/launches/1/search?since=soon",
        "/v1/launches/1/logs?at=rank-0:@soon",
    ):
        reply: httpx.Response = node.http.get(path)
        assert reply.status_code == 400, path


def test_a_search_ends_with_its_client_and_follows_until_then(
    node: Supervised, free_port: int
) -> None:
    view = node.up(port=free_port)
    assert node.process is not None
    supervisor = psutil.Process(node.process.pid)

    def workers() -> list[psutil.Process]:
        found = supervisor.children()
        return [each for each in found if any("logs.worker" in word for word in each.cmdline())]

    with node.http.stream("GET", f"/v1/launches/{view.id}/search?pattern=late&follow=1") as stream:
        lines = (msgspec.json.decode(line, type=Found) for line in stream.iter_lines())
        while next(lines).source:
            pass
        assert workers()
        with (node.home.launch(view.id) / "rank-1.log").open("a") as log:
            log.write("a line that comes late\n")
        grown = next(found for found in lines if found.count)
        assert (grown.source, grown.count) == ("rank-1", 1)

    wait_for(lambda: not workers(), "the workers to end")
    assert node.snapshot().launch is not None
