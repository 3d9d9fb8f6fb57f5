"""The client of the engine's chat API, over a real port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from panel.domain.errors import PanelError
from panel.talk import Delta, EngineClient, Turn
from tests.client.served import served


async def models(request: Request) -> Response:
    return JSONResponse({"data": [{"id": "moe-tiny"}]})


def engine(chat: Any) -> Starlette:
    return Starlette(routes=[
        Route("/v1/models", models),
        Route("/v1/chat/completions", chat, methods=["POST"]),
    ])  # fmt: skip


def chunk(text: str) -> bytes:
    return f"data: {json.dumps({'choices': [{'delta': {'content': text}}]})}\n\n".encode()


async def said(port: int, turns: list[Turn]) -> list[Delta]:
    client = EngineClient(f"http://127.0.0.1:{port}")
    try:
        return [piece async for piece in client.chat(turns, 32)]
    finally:
        await client.close()


async def test_an_answer_streams_with_its_count(free_port: int) -> None:
    asked: list[dict[str, Any]] = []

    async def chat(request: Request) -> Response:
        asked.append(await request.json())

        async def lines() -> AsyncIterator[bytes]:
            yield b'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\n'
            yield chunk("The")
            yield chunk(" sea")
            yield b'data: {"choices": [], "usage": {"completion_tokens": 2}}\n\n'
            yield b"data: [DONE]\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    async with served(engine(chat), port=free_port):
        pieces = await said(free_port, [Turn("user", "hi")])
    assert pieces == [Delta(""), Delta("The"), Delta(" sea"), Delta("", 2)]
    assert asked[0]["model"] == "moe-tiny"
    assert asked[0]["messages"] == [{"role": "user", "content": "hi"}]
    assert (asked[0]["stream"], asked[0]["max_tokens"]) == (True, 32)


async def test_closing_the_answer_ends_the_request(free_port: int) -> None:
    gone = asyncio.Event()

    async def chat(request: Request) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield chunk("x")
                    await asyncio.sleep(0.01)
            finally:
                gone.set()

        return StreamingResponse(lines(), media_type="text/event-stream")

    client = EngineClient(f"http://127.0.0.1:{free_port}")
    async with served(engine(chat), port=free_port):
        answer = client.chat([Turn("user", "hi")], 32)
        assert await anext(answer) == Delta("x")
        await answer.aclose()
        await asyncio.wait_for(gone.wait(), 5)
    await client.close()


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [('{"error": {"message": "prompt too long"}}', 400, "the engine refused: prompt too long"),
     ("<html>", 502, "the engine answered 502")],
)  # fmt: skip
async def test_refusals_are_told(free_port: int, body: str, status: int, told: str) -> None:
    async def chat(request: Request) -> Response:
        return Response(body, status)

    async with served(engine(chat), port=free_port):
        with pytest.raises(PanelError, match=told):
            await said(free_port, [])


async def test_an_error_inside_the_stream_is_told(free_port: int) -> None:
    async def chat(request: Request) -> Response:
        return Response(b'data: {"error": {"message": "rank 3 died"}}\n\n')

    async with served(engine(chat), port=free_port):
        with pytest.raises(PanelError, match="rank 3 died"):
            await said(free_port, [])


async def test_an_answer_in_another_format_is_told(free_port: int) -> None:
    async def chat(request: Request) -> Response:
        return Response(b"data: {broken\n\n")

    async with served(engine(chat), port=free_port):
        with pytest.raises(PanelError, match="not in the OpenAI format"):
            await said(free_port, [])


async def test_an_engine_that_is_gone_is_told(free_port: int) -> None:
    with pytest.raises(PanelError, match="went away"):
        await said(free_port, [])
