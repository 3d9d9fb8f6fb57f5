"""Keepers from the supervisor's side: started, warmed, ordered, signalled, seen to end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

import panel
from panel.supervisor import procfs
from panel.supervisor.evidence import KeeperId

ROOT = Path(panel.__file__).parents[1]
"""The folder that holds the package: `python -m panel…` works there, installed or not."""


class Keeper:
    """A keeper that was alive when last heard of. `pidfd` becomes readable when it ends."""

    def __init__(self, pid: int, pidfd: int, child: subprocess.Popen[bytes] | None = None) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self._child = child

    def signal(self, sig: signal.Signals) -> None:
        """Send a signal; nothing happens where the keeper is gone."""
        try:
            signal.pidfd_send_signal(self.pidfd, sig)
        except ProcessLookupError:
            return

    def close(self) -> None:
        """Reap it where it is ours, let go of the descriptor. To be called once it has ended."""
        if self._child is not None:
            self._child.wait()
        os.close(self.pidfd)


def find_keeper(known: KeeperId | None) -> Keeper | None:
    """Return the keeper that wrote this, None where it is gone."""
    if known is None or known.boot_id != procfs.boot_id():
        return None
    try:
        pidfd = os.pidfd_open(known.pid)
    except ProcessLookupError:
        return None
    # Asked after the descriptor is open: from here on the pid cannot change hands unnoticed.
    if not procfs.is_alive(known.pid, known.start_ticks):
        os.close(pidfd)
        return None
    return Keeper(known.pid, pidfd)


class PairKey(NamedTuple):
    """What a keeper was started with; a launch that needs something else cannot use it."""

    spawner: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    version: float
    """When the package's code was last changed: its newest modification time."""


class Pair:
    """A keeper, with its spawner where the engine has one, that waits for its order."""

    def __init__(self, key: PairKey, log: Path, program: str = "panel.supervisor.keeper") -> None:
        """Start it in a session of its own. Raises OSError."""
        self.key = key
        # The marker must be there from the start: /proc shows the environment of the exec.
        self.uuid = uuid.uuid4().hex
        argv = [sys.executable, "-m", program]
        if key.spawner:
            command = [sys.executable, *key.spawner]
            argv += ["--spawner", msgspec.json.encode(command).decode()]
        marker = {procfs.LAUNCH_MARKER: self.uuid}
        with log.open("ab") as errors:
            self._child = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | dict(key.env) | marker,
                cwd=ROOT,
                start_new_session=True,
            )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._orders, self._answers = self._child.stdin, self._child.stdout
        self.keeper = Keeper(self._child.pid, os.pidfd_open(self._child.pid), self._child)

    def poll(self) -> bool:
        """Return whether the keeper is there; reaps it where it has ended."""
        return self._child.poll() is None

    @property
    def ready(self) -> bool:
        """Whether the spawner has said that it waits; it says nothing else."""
        return bool(select.select([self._answers], [], [], 0)[0])

    def order(self, line: bytes) -> None:
        """Hand over the order; the keeper is on its own from here. Raises OSError."""
        with self._answers, self._orders as pipe:
            pipe.write(line + b"\n")

    def drop(self) -> None:
        """End both by EOF; they take a moment, see `poll`."""
        self._answers.close()
        self._orders.close()


def code_version() -> float:
    """Return the newest modification time of the package's code."""
    return max(path.stat().st_mtime for path in Path(panel.__file__).parent.rglob("*.py"))


def pair_key(spawner: tuple[str, ...], env: Mapping[str, str]) -> PairKey:
    """Return the key of what a launch needs now."""
    return PairKey(spawner, tuple(sorted(env.items())), code_version())
