"""A supervisor of its own process on a home of its own, with the fake engine or the real one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec

from panel.config.home import Home, find_home
from panel.domain.events import Event
from panel.domain.snapshot import LaunchView, Snapshot
from panel.domain.states import LaunchState
from panel.domain.wire import ErrorReply
from panel.supervisor import procfs
from panel.supervisor.evidence import EventReader, Folder
from panel.supervisor.start import answers

FAKE = [sys.executable, str(Path(__file__).with_name("fake_supervisor.py"))]
REAL = [sys.executable, "-m", "panel.supervisor"]
DEADLINE_S = 60.0

T = TypeVar("T")


def wait_for(condition: Callable[[], T | None], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Return the first true value of `condition`."""
    until = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.01)
    return value


class Supervised:
    """A home and the supervisor that serves it."""

    def __init__(self, folder: Path, program: list[str]) -> None:
        self.env = os.environ | {"MOEPANEL_HOME": str(folder)}
        self.home: Home = find_home(self.env)
        self._program = program
        self.process: subprocess.Popen[bytes] | None = None
        transport = httpx.HTTPTransport(uds=str(self.home.socket))
        self.http = httpx.Client(transport=transport, base_url="http://node", timeout=30.0)

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.process = subprocess.Popen(self._program, env=self.env)
        wait_for(lambda: answers(self.home.socket), "the supervisor")

    def kill(self, sig: signal.Signals) -> int:
        """Send a signal; return the exit code."""
        assert self.process is not None
        self.process.send_signal(sig)
        return self.process.wait(DEADLINE_S)

    def get(self, path: str, kind: type[T]) -> T:
        """Return a decoded answer."""
        reply = self.http.get(path)
        assert reply.status_code == 200, reply.text
        return msgspec.json.decode(reply.content, type=kind)

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        """Send a request that is accepted; return the answer."""
        reply = self.http.post(path, json=body)
        assert reply.status_code < 300, reply.text
        return dict(reply.json())

    def refused(self, path: str, **body: Any) -> tuple[int, ErrorReply]:
        """Send a request that is not accepted; return status and error."""
        reply = self.http.post(path, json=body)
        assert reply.status_code >= 400, reply.text
        return reply.status_code, msgspec.json.decode(reply.content, type=ErrorReply)

    def snapshot(self) -> Snapshot:
        """Return the present snapshot."""
        return self.get("/v1/snapshot", Snapshot)

    def wait_launch(self, number: int, *states: LaunchState) -> LaunchView:
        """Return the launch once it is in one of these states."""

        def reached() -> LaunchView | None:
            launch = self.snapshot().launch
            arrived = launch is not None and launch.id == number and launch.state in states
            return launch if arrived else None

        return wait_for(reached, f"launch {number} to be {' or '.join(states)}")

    def up(self, **flags: Any) -> LaunchView:
        """Launch two ranks and wait until they serve."""
        flags = {"tp-size": 2, **flags}
        number = self.post("/v1/up", set={name: str(value) for name, value in flags.items()})
        return self.wait_launch(number["launch"], LaunchState.SERVING)

    def events(self, number: int) -> list[Event]:
        """Return the events of a launch."""
        return EventReader(Folder(self.home.launch(number))).read()

    def processes(self, uuid: str) -> list[int]:
        """Return what lives of a launch."""
        return procfs.marked({procfs.LAUNCH_MARKER: uuid})

    def close(self) -> None:
        """Shut everything down by force."""
        self.http.close()
        if self.process is not None and self.process.poll() is None:
            self.kill(signal.SIGKILL)
        for folder in self.home.launches.glob("*/launch.json"):
            for pid in self.processes(msgspec.json.decode(folder.read_bytes())["uuid"]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def supervised(folder: Path, program: list[str] = FAKE) -> Iterator[Supervised]:
    """Run a supervisor; nothing of it is left afterwards."""
    node = Supervised(folder, program)
    try:
        node.start()
        yield node
    finally:
        node.close()
