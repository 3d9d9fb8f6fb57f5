"""The process of the front end: from a bound socket to an exit code."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import uvicorn

from panel.server import reporting
from panel.server.config import model_folder
from panel.server.exits import Exit
from panel.server.frontend.app import build_app
from panel.server.frontend.link import Link
from panel.server.frontend.metrics import Metrics
from panel.server.frontend.service import Service
from panel.server.frontend.text import load_text
from panel.server.heartbeat import HeartbeatFile
from panel.server.options import Options

log = logging.getLogger(__name__)

LINGER_SECONDS = 1.0
"""How long the process outlives rank 0, so that clients and probes hear of it."""
_BACKLOG = 4096
"""Connections that wait to be accepted; one more has to knock again, a second or more later."""
FAREWELL_SECONDS = 5.0
"""How long a stopped front end waits for rank 0 to hang up first."""


def run(
    options: Options, engine: socket.socket, listener: socket.socket, heartbeats: HeartbeatFile
) -> int:
    """Serve the API on `listener`, with rank 0 at the other end of `engine`; return the exit code.

    Ends after SIGTERM or SIGINT (running requests get `drain_seconds`), or when rank 0 is gone.
    Raises `ModelError` where the model has no usable tokenizer.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # Each connection is an open file, and shells allow 1024 of those.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Thousands of open connections are millions of objects: to walk them often stops everybody.
    gc.set_threshold(50_000, 20, 100)
    link = Link()
    reporting.setup("API", options.log_level, phase_of=lambda: link.phase)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    folder = model_folder(options.model_path)
    service = Service(
        options=options,
        model=options.served_model_name or folder.name,
        text=load_text(folder),
        link=link,
        heartbeats=heartbeats,
        metrics=Metrics(lambda: link.stats),
    )
    return asyncio.run(_serve(service, engine, listener))


class _Server(uvicorn.Server):
    """uvicorn, with our own answer to signals."""

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_stop = on_stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; at the second signal at once. Called at any point of the program.

        uvicorn would raise the signal again after serving, and so hide our exit code.
        """
        if self.should_exit:
            self.force_exit = True
        else:
            self.should_exit = True
            self._on_stop()


async def _serve(service: Service, engine: socket.socket, listener: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    link = service.link
    seconds = service.options.drain_seconds
    await loop.create_connection(lambda: link, sock=engine)

    def drain() -> None:
        log.info("draining: %d requests get %g s", link.running, seconds)
        link.drain(seconds)

    def stop() -> None:
        loop.call_soon_threadsafe(drain)

    config = uvicorn.Config(
        build_app(service),
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        # A client that does not read its answer must not keep the process.
        timeout_graceful_shutdown=math.ceil(seconds) + 1,
    )
    server = _Server(config, stop)
    ending = asyncio.create_task(_end_with_rank_0(link, server))
    host, port = listener.getsockname()[:2]
    address = f"[{host}]" if ":" in host else host
    log.info("listening on http://%s:%d as %s", address, port, service.model)
    await server.serve(sockets=[listener])
    ending.cancel()
    if link.draining:
        # Rank 0 would take the end of this process for a failure.
        with suppress(TimeoutError):
            await asyncio.wait_for(link.closed.wait(), FAREWELL_SECONDS)
    link.close()
    return Exit.OK if link.draining else Exit.PEER


async def _end_with_rank_0(link: Link, server: uvicorn.Server) -> None:
    await link.closed.wait()
    if not link.draining:
        log.error("%s; this process ends too", link.loss)
        await asyncio.sleep(LINGER_SECONDS)
    server.should_exit = True
