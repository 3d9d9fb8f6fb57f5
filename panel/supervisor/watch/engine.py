"""Asks the engine's own API: is it ready, and what does it measure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import httpx

from panel.supervisor.watch.metrics import MetricsHistory, parse

BOOT_S = 0.1
SERVING_S = 1.0
_TIMEOUT_S = 2.0


class EngineProbe:
    """Polls the engine's health, and `/metrics` once that is good, until it is cancelled."""

    def __init__(
        self,
        url: str,
        health: str,
        api_key: str | None,
        history: MetricsHistory,
        answered: Callable[[int, float], None],
    ) -> None:
        """`answered` is told the status (0: refused or timed out) and the milliseconds each time
        the status changes."""
        self._url = url
        self._health = health
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._history = history
        self._answered = answered
        self._code: int | None = None

    async def run(self) -> None:
        """Poll until cancelled."""
        # The engine is on this node: a proxy from the environment has no part in it.
        async with httpx.AsyncClient(
            base_url=self._url, headers=self._headers, timeout=_TIMEOUT_S, trust_env=False
        ) as client:
            while True:
                started = time.monotonic()
                code = await self._ready(client)
                if code == 200:
                    await self._measure(client)
                pause = SERVING_S if code == 200 else BOOT_S
                await asyncio.sleep(max(0.02, started + pause - time.monotonic()))

    async def _ready(self, client: httpx.AsyncClient) -> int:
        started = time.monotonic()
        try:
            code = (await client.get(self._health)).status_code
        except httpx.HTTPError:
            code = 0
        if code != self._code:
            self._code = code
            self._answered(code, round(1000 * (time.monotonic() - started), 1))
        return code

    async def _measure(self, client: httpx.AsyncClient) -> None:
        try:
            reply = await client.get("/metrics")
        except httpx.HTTPError:
            return
        if reply.status_code == 200:
            self._history.add(time.monotonic(), parse(reply.text))
