"""The real process on a real socket: streaming, hang-ups, signals and a vanished rank 0."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from panel.server.exits import Exit
from panel.server.heartbeat import HeartbeatFile
from panel.server.messages import Abort, Drain, Generate, Step, Tokens
from tests.frontend.scripted_engine import DEADLINE, STARTED, ScriptedEngine

STREAM = {"prompt": "a", "stream": True, "max_tokens": 40}


@dataclass
class Running:
    """A front end in a process of its own."""

    engine: ScriptedEngine
    client: httpx.AsyncClient
    process: Process

    async def exit_code(self) -> int:
        async with asyncio.timeout(DEADLINE):
            return await self.process.wait()


@asynccontextmanager
async def front_end(checkpoint: Path, heartbeats: Path, *flags: str) -> AsyncIterator[Running]:
    """Run a front end; at the end it must be gone."""
    ours, theirs = socket.socketpair()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("front_process.py")),
        str(theirs.fileno()),
        str(listener.fileno()),
        str(heartbeats),
        f"--model-path={checkpoint}",
        "--tp-size=2",
        *flags,
        pass_fds=(theirs.fileno(), listener.fileno()),
        stderr=asyncio.subprocess.PIPE,
    )
    theirs.close()
    listener.close()
    engine = ScriptedEngine()
    await engine.attach(ours)
    engine.say(STARTED)
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE
        ) as client:
            # The listening socket holds connections back until the process takes them.
            assert (await client.get("/health")).status_code == 200
            yield Running(engine, client, process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
        await engine.hang_up()


@pytest.fixture
def beats(heartbeats: HeartbeatFile, tmp_path: Path) -> Path:
    """The file of heartbeats."""
    return tmp_path / "heartbeats"


async def next_event(lines: AsyncIterator[str]) -> Any:
    async for line in lines:
        if line:
            return json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream ended")


async def test_a_stream_comes_piece_by_piece_and_ends_with_its_error(
    checkpoint: Path, beats: Path, tokens_of: Callable[[str], list[int]]
) -> None:
    async with (
        front_end(checkpoint, beats) as front,
        asyncio.TaskGroup() as tasks,
    ):
        opening = tasks.create_task(front.engine.expect(Generate))
        front.engine.answer = lambda request: [Tokens(request.rid, tokens_of("the"))]
        async with front.client.stream("POST", "/v1/completions", json=STREAM) as answer:
            rid = (await opening).rid
            lines = answer.aiter_lines()
            assert (await next_event(lines))["choices"][0]["text"] == "the"
            front.engine.say(Step([Tokens(rid, tokens_of(" fox"))]))
            assert (await next_event(lines))["choices"][0]["text"] == " fox"
            front.engine.say(Step([Tokens(rid, [], finish="error", error="not finite")]))
            assert "not finite" in (await next_event(lines))["error"]["message"]
            assert [line async for line in lines if line] == ["data: [DONE]"]


async def test_the_stream_interval_gathers_tokens(
    checkpoint: Path, beats: Path, tokens_of: Callable[[str], list[int]]
) -> None:
    async with front_end(checkpoint, beats, "--stream-interval=3") as front:
        front.engine.answer = lambda request: [Tokens(request.rid, tokens_of("A"))]
        async with front.client.stream("POST", "/v1/completions", json=STREAM) as answer:
            rid = (await front.engine.expect(Generate)).rid
            lines = answer.aiter_lines()
            assert (await next_event(lines))["choices"][0]["text"] == "A"
            for token in tokens_of("BCD"):
                front.engine.say(Step([Tokens(rid, [token])]))
            assert (await next_event(lines))["choices"][0]["text"] == "BCD"
            front.engine.say(Step([Tokens(rid, tokens_of("E"))]))
            front.engine.say(Step([Tokens(rid, [], finish="length")]))
            assert (await next_event(lines))["choices"][0]["text"] == "E"


async def test_a_client_that_hangs_up_aborts_its_stream(checkpoint: Path, beats: Path) -> None:
    async with front_end(checkpoint, beats) as front:
        front.engine.answer = lambda request: [Tokens(request.rid, [7])]
        async with front.client.stream("POST", "/v1/completions", json=STREAM) as answer:
            assert answer.status_code == 200
        request = await front.engine.expect(Generate)
        assert (await front.engine.expect(Abort)).rid == request.rid


async def test_a_client_that_hangs_up_aborts_its_request(checkpoint: Path, beats: Path) -> None:
    async with front_end(checkpoint, beats) as front:
        asking = asyncio.create_task(front.client.post("/v1/completions", json={"prompt": "a"}))
        request = await front.engine.expect(Generate)
        asking.cancel()
        assert (await front.engine.expect(Abort)).rid == request.rid
        metrics = (await front.client.get("/metrics")).text
        assert 'moepanel_requests_total{finish="abort"} 1.0' in metrics


async def test_a_client_that_hangs_up_in_its_body_is_no_failure(
    checkpoint: Path, beats: Path
) -> None:
    async with front_end(checkpoint, beats) as front:
        port = front.client.base_url.port
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        await writer.drain()
        writer.close()
        assert front.process.stderr is not None
        async with asyncio.timeout(DEADLINE):
            while b"/v1/completions 499" not in (line := await front.process.stderr.readline()):
                assert b"ERROR" not in line
        assert (await front.client.get("/health")).status_code == 200


async def test_sigterm_lets_running_requests_finish(checkpoint: Path, beats: Path) -> None:
    async with front_end(checkpoint, beats, "--drain-seconds=30") as front:
        asking = asyncio.create_task(front.client.post("/v1/completions", json={"prompt": "a"}))
        request = await front.engine.expect(Generate)
        front.process.send_signal(signal.SIGTERM)
        assert (await front.engine.expect(Drain)).seconds == 30
        front.engine.say(Step([Tokens(request.rid, [7], finish="stop")]))
        assert (await asking).json()["choices"][0]["finish_reason"] == "stop"
        await front.engine.hang_up()
        assert await front.exit_code() == Exit.OK
        with pytest.raises(httpx.ConnectError):
            await front.client.get("/health")


async def test_sigterm_ends_what_does_not_finish(checkpoint: Path, beats: Path) -> None:
    async with front_end(checkpoint, beats, "--drain-seconds=0.2") as front:
        asking = asyncio.create_task(front.client.post("/v1/completions", json={"prompt": "a"}))
        await front.engine.expect(Generate)
        front.process.send_signal(signal.SIGTERM)
        assert (await asking).json()["choices"][0]["finish_reason"] == "abort"
        await front.engine.hang_up()
        assert await front.exit_code() == Exit.OK


async def test_the_process_ends_after_rank_0_and_says_so(checkpoint: Path, beats: Path) -> None:
    async with front_end(checkpoint, beats) as front:
        asking = asyncio.create_task(front.client.post("/v1/completions", json={"prompt": "a"}))
        await front.engine.expect(Generate)
        await front.engine.hang_up()
        answer = await asking
        assert (answer.status_code, "log of rank 0" in answer.text) == (503, True)
        assert (await front.client.get("/health")).status_code == 503
        assert await front.exit_code() == Exit.PEER
        assert front.process.stderr is not None
        log = (await front.process.stderr.read()).decode()
        assert "API stopped] ERROR rank 0 is gone" in log
        assert "Traceback" not in log
