"""A small Starlette application on a real Unix socket or port, in the test's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette


@asynccontextmanager
async def served(app: Starlette, **where: Any) -> AsyncIterator[uvicorn.Server]:
    """Serve `app` (`uds=path` or `port=number`) until the block ends."""
    server = uvicorn.Server(
        uvicorn.Config(app, ws="none", lifespan="off", log_level="critical",
                       timeout_graceful_shutdown=1, **where)
    )  # fmt: skip
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(5):
        while not server.started:
            await asyncio.sleep(0.005)
    try:
        yield server
    finally:
        server.should_exit = True
        await task
