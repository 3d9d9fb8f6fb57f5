"""Thousands of mixed requests against a live engine whose cache is far too small for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from tests.server.live import Live, live_engine

REQUESTS = 2500
SECONDS = 25.0
"""No request begins later than this; on a slow machine fewer are made."""
AT_ONCE = 40
BEGINNINGS = [[Random(n).randrange(4, 4000) for _ in range(60)] for n in range(8)]


def made(number: int) -> tuple[str, dict[str, Any], float | None]:
    """Return path and body of a request, and after how many seconds its client hangs up."""
    numbers = Random(number)
    prompt = numbers.choice(BEGINNINGS)[: numbers.randrange(1, 60)]
    body: dict[str, Any] = {
        "max_tokens": numbers.choice([1, 1, 2, 2, 3, 30]),
        "temperature": numbers.choice([0, 0.8]),
        "stream": numbers.random() < 0.5,
        "ignore_eos": numbers.random() < 0.5,
        "priority": numbers.randrange(3),
        "seed": number,
    }
    if numbers.random() < 0.2:
        body |= {"top_p": 0.9, "repetition_penalty": 1.2, "stop": ["the", "qqq"]}
    leaves = numbers.uniform(0, 0.4) if numbers.random() < 0.15 else None
    if numbers.random() < 0.3:
        messages = [{"role": "user", "content": f"Tell me of number {number}"}]
        return "/v1/chat/completions", {"messages": messages, **body}, leaves
    body |= {"prompt": prompt, "n": numbers.choice([1, 1, 1, 2])}
    if numbers.random() < 0.2:
        body["logprobs"] = 2
    return "/v1/completions", body, leaves


async def ask(port: int, number: int) -> str:
    """Send one request; return how it ended: `left` or `whole`; anything else is a failure."""
    path, body, leaves = made(number)
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(data)}"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head.encode() + b"\r\n\r\n" + data)
        async with asyncio.timeout(leaves or 60.0):
            answer = await reader.read()
    except TimeoutError:
        return "left" if leaves is not None else "too late"
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    whole = b"data: [DONE]\n\n" if body["stream"] else b'"total_tokens"'
    return "whole" if b" 200 OK" in answer[:20] and whole in answer else answer.decode()


async def crowd(port: int) -> Counter[str]:
    """Make the requests, some at once; count how they ended."""
    ends: Counter[str] = Counter()
    numbers = iter(range(REQUESTS))
    until = time.monotonic() + SECONDS

    async def client() -> None:
        for number in numbers:
            ends[await ask(port, number)] += 1
            if time.monotonic() > until:
                return

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    return ends


def test_a_crowd_leaves_no_page_and_no_request_behind(tmp_path: Path) -> None:
    flags = ("--max-total-tokens=320", "--context-length=256", "--page-size=4")
    with live_engine(tmp_path, *flags, "--speculative-algorithm=ngram") as live:
        before = live.complete(prompt=BEGINNINGS[0][:40], max_tokens=12)
        began = time.monotonic()
        ends = asyncio.run(crowd(live.port))
        print(f"{dict(ends)} in {time.monotonic() - began:.1f} s")
        assert set(ends) == {"whole", "left"}
        assert ends.total() > REQUESTS / 10
        stats = live.settle()
        print(stats)
        assert stats["preemptions"] > 0
        assert stats["cached_tokens"] > 0
        assert live.complete(prompt=BEGINNINGS[0][:40], max_tokens=12) == before
        check_books(live)
        assert live.stop() == 0
        log = live.log.read_text()
        assert log.count("every page is accounted for") == 1
        assert "ERROR" not in log
        assert "Traceback" not in log


def check_books(live: Live) -> None:
    """Everything that began has ended, and what the cache kept can all be had again."""
    kept = live.settle()["kv_cached"]
    assert live.post("/flush_cache", b"") == (200, {"flushed_tokens": kept})
    values = live.samples()
    ended = sum(value for name, value in values.items() if "requests_total/" in name)
    assert values["moepanel_e2e_request_latency_seconds_count"] == ended
    assert not any(name.endswith("requests_total/error") for name in values)
