"""The daemon: one a home, answering on its socket until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn

from panel import __version__
from panel.config.home import Home
from panel.config.settings import Settings, load_settings
from panel.domain.errors import BusyError, PanelError
from panel.engines import find_engine
from panel.engines.base import Engine
from panel.supervisor.api import make_app
from panel.supervisor.node import Node

log = logging.getLogger(__name__)

FindEngine = Callable[[str], Engine]
_STREAMS_END_S = 1


def run_daemon(home: Home, engines: FindEngine = find_engine) -> None:
    """Serve `home` until it is shut down or gets SIGTERM, which leaves a gang serving.

    Raises `BusyError` where another supervisor serves it, and `PanelError` for a home, settings or
    a ledger that cannot be used.
    """
    os.umask(0o077)
    try:
        home.prepare()
    except OSError as error:
        raise PanelError(f"{error.filename}: {error.strerror}", "set MOEPANEL_HOME") from None
    with _locked(home):
        _log_to(home.log)
        settings = load_settings(home.config_file)
        with _listening(home.socket) as listener:
            asyncio.run(_serve(home, settings, engines, listener))


async def _serve(
    home: Home, settings: Settings, engines: FindEngine, listener: socket.socket
) -> None:
    node = Node(home, settings, engines)
    server = _Server(
        uvicorn.Config(
            make_app(node),
            lifespan="off",
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=_STREAMS_END_S,
        )
    )
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    log.info("supervisor %s, pid %d, home %s", __version__, os.getpid(), home.state)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    watching = asyncio.create_task(node.run())
    ends = [asyncio.create_task(event.wait()) for event in (told, node.ended)]
    try:
        await asyncio.wait([serving, watching, *ends], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (watching, *ends):
            task.cancel()
        await asyncio.gather(watching, *ends, return_exceptions=True)
        server.should_exit = True
        await serving
        await node.close()
        log.info("supervisor ended")
    # A fault of the watching ends the daemon: the next one adopts the gang.
    if not watching.cancelled():
        watching.result()


class _Server(uvicorn.Server):
    """Leaves the signals to us: its own handlers would kill us before we have cleaned up."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _locked(home: Home) -> Iterator[None]:
    """Hold the lock file, which says who we are, or raise `BusyError`."""
    with open(os.open(home.lock, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                f"supervisor {file.read().strip() or '?'} serves {home.state} already",
                "moepanel shutdown ends it; another MOEPANEL_HOME makes room for a second",
            ) from None
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


@contextlib.contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    """Bind the socket; to be called with the lock held, so that one that is there is stale."""
    path.unlink(missing_ok=True)
    # Bound under our umask, the socket is for this user alone from its first moment.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(128)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _log_to(path: Path) -> None:
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(levelname)s %(message)s"))
    logging.getLogger().handlers[:] = [handler]
    logging.getLogger("panel").setLevel(logging.INFO)
