"""Ten thousand requests at once: they wait or are refused, none is lost, and the API answers."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.server.live import Live, live_engine
from tests.server.support import wait_until

CROWD = 10_000
COPIES = 100
RUNNING = 16
MIB = 1 << 20


@pytest.fixture(autouse=True)
def files() -> Iterator[None]:
    """Let this process have as many connections as it may."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def ask(port: int, **fields: object) -> tuple[int, bytes]:
    """Send one completion request; return status and body."""
    body = json.dumps({"prompt": "a", "ignore_eos": True, **fields}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    head_, _, answer = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head_.split()[1]), answer


async def watch_health(live: Live, seen: list[float]) -> None:
    """Ask for the health again and again; collect how many seconds each answer took."""
    while True:
        begun = time.monotonic()
        assert await asyncio.to_thread(live.get, "/health") == {"status": "ok"}
        seen.append(time.monotonic() - begun)


def resident(live: Live) -> dict[str, int]:
    """Memory of rank 0 and of the front end, in bytes."""
    processes = {each.name(): each for each in psutil.Process(live.process.pid).children()}
    return {name: processes[name].memory_info().rss for name in ("moe-rank-0", "moe-frontend")}


def test_ten_thousand_wait_and_as_many_are_refused(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    refused = min(CROWD, hard - 1000)
    flags = (f"--max-running-requests={RUNNING}", f"--max-queued-requests={CROWD - RUNNING}")
    with live_engine(tmp_path, *flags) as live:
        before = resident(live)
        during: dict[str, int] = {}
        healthy: list[float] = []

        def full() -> bool:
            stats = live.get("/server_info")["stats"]
            return stats is not None and stats["running"] + stats["waiting"] == CROWD

        async def crowd() -> list[tuple[int, bytes]]:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch_health(live, healthy))
                waiting = [
                    group.create_task(ask(live.port, n=COPIES, max_tokens=1500))
                    for _ in range(CROWD // COPIES)
                ]
                await asyncio.to_thread(wait_until, full)
                late = await asyncio.gather(*(ask(live.port) for _ in range(refused)))
                during.update(resident(live))
                aborted = await asyncio.to_thread(live.post, "/abort_request", {"abort_all": True})
                assert aborted == (200, {"aborted": len(waiting)})
                ended = await asyncio.gather(*waiting)
                watching.cancel()
            assert Counter(status for status, _ in ended) == {200: len(waiting)}
            ends = Counter(
                c["finish_reason"] for _, body in ended for c in json.loads(body)["choices"]
            )
            assert ends == {"abort": CROWD}
            return late

        late = asyncio.run(crowd())
        assert Counter(status for status, _ in late) == {503: refused}
        assert all(json.loads(body)["error"]["code"] == "queue_full" for _, body in late)
        assert len(healthy) > 5
        grown = {name: (during[name] - before[name]) / MIB for name in before}
        print(f"health {len(healthy)} times, {max(healthy):.1f} s at most; grown by {grown} MiB")
        assert grown["moe-rank-0"] < 100
        assert grown["moe-frontend"] < 500
        live.settle()
        check_that_all_are_served(live)
        assert live.settle()["kv_used"] == 0
        assert live.stop() == 0
        log = live.log.read_text()
        assert "every page is accounted for" in log
        assert "ERROR" not in log
        assert "Traceback" not in log


def check_that_all_are_served(live: Live) -> None:
    """Queue a thousand once more, a token each, and wait for every one."""
    crowd = 10

    async def ask_all() -> list[tuple[int, bytes]]:
        asking = (ask(live.port, n=COPIES, max_tokens=1) for _ in range(crowd))
        return await asyncio.gather(*asking)

    answers = asyncio.run(ask_all())
    assert [status for status, _ in answers] == [200] * crowd
    bodies = [json.loads(body) for _, body in answers]
    ends = Counter(choice["finish_reason"] for body in bodies for choice in body["choices"])
    assert ends == {"length": crowd * COPIES}
    assert sum(body["usage"]["completion_tokens"] for body in bodies) == crowd * COPIES
