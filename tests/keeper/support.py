"""A real keeper with small processes as its gang."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from panel.supervisor import procfs

SPAWNER = [sys.executable, "-I", str(Path(__file__).with_name("fake_spawner.py"))]
DEADLINE_S = 20.0

T = TypeVar("T")


def wait_for(condition: Callable[[], T | None], what: str) -> T:
    """Return the first true value of `condition`."""
    until = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.005)
    return value


class KeeperProcess:
    """A keeper, its evidence folder, and what is in there."""

    def __init__(
        self, folder: Path, *, spawner: list[str] | None = SPAWNER, program: list[str] | None = None
    ) -> None:
        self.folder = folder
        self.uuid = os.urandom(8).hex()
        argv = program or [sys.executable, "-m", "panel.supervisor.keeper"]
        if spawner is not None:
            argv = [*argv, "--spawner", json.dumps(spawner)]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )

    def order(
        self,
        *ranks: str,
        processes: Iterable[dict[str, Any]] = (),
        evidence_s: float = 0.2,
        grace_s: float = 0.5,
        env: dict[str, str] | None = None,
    ) -> None:
        """Order ranks with these behaviours (or the spawner's own), or other processes."""
        sources = [rank.split("=")[0] for rank in ranks if "=" in rank]
        logs = {source: str(self.folder / f"{source}.log") for source in [*sources, "spawner"]}
        self.send(
            {
                "folder": str(self.folder),
                "uuid": self.uuid,
                "t0_mono_ns": time.monotonic_ns(),
                "env": env or {},
                "spawner": {"argv": list(ranks), "logs": logs} if ranks else None,
                "processes": list(processes),
                "policy": {"evidence_s": evidence_s, "grace_s": grace_s},
            }
        )

    def engine(self, code: str, *argv: str, cwd: Path | None = None) -> dict[str, Any]:
        """Return an engine of its own that runs this Python code, for `processes`."""
        return {
            "source": "engine",
            "argv": [sys.executable, "-c", code, *argv],
            "cwd": None if cwd is None else str(cwd),
            "log": str(self.folder / "engine.log"),
            "world_size": 2,
            "stop": [],
            "pids": [],
        }

    def send(self, message: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    @property
    def pid(self) -> int:
        return self.process.pid

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        events = [json.loads(line) for line in lines]
        return [event for event in events if kind in (None, event["kind"])]

    def states(self) -> list[str]:
        return [event["state"] for event in self.events("gang")]

    def pids(self) -> dict[str, int]:
        return {event["source"]: event["pid"] for event in self.events("spawn")}

    def log(self, source: str) -> str:
        path = self.folder / f"{source}.log"
        return path.read_text() if path.exists() else ""

    def up(self) -> dict[str, int]:
        """Wait until the gang exists and each process is what it is to be; return the pids."""
        wait_for(lambda: "up" in self.states(), "the gang")
        pids = self.pids()
        wait_for(lambda: all("ready" in self.log(source) for source in pids), "its processes")
        return pids

    def state(self, state: str) -> dict[str, Any]:
        """Wait for the gang to be in `state`; return the event."""
        wait_for(lambda: state in self.states(), state)
        return next(event for event in self.events("gang") if event["state"] == state)

    def stop(self, sig: int = signal.SIGTERM) -> None:
        self.process.send_signal(sig)

    def end(self) -> int:
        """Wait for the keeper to end; return its exit code."""
        return self.process.wait(DEADLINE_S)

    def left(self) -> list[int]:
        """Return the processes that still bear one of the markers of this gang."""
        markers = {procfs.LAUNCH_MARKER: self.uuid}
        identity = self.folder / "keeper.json"
        if identity.exists():
            markers[procfs.KEEPER_MARKER] = json.loads(identity.read_text())["marker"]
        return procfs.marked(markers)

    def clear(self) -> None:
        """Leave nothing behind, whatever the test has done."""
        family = [stat.pid for stat in procfs.descendants(self.pid)]
        with self.process:
            self.process.kill()
        for pid in {*family, *self.left()}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        wait_for(lambda: not self.left(), "the end of everything")
