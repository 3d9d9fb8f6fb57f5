"""A weight keeper for tests, and what it says of itself."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from panel.server.kept.wire import ADDRESS
from tests.server.support import DEADLINE, wait_until

ROOT = Path(__file__).parents[2]


class Keeping:
    """The process of a weight keeper on a socket in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "weights.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(self.path))
            listener.listen()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "panel.server.kept", str(listener.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=(listener.fileno(),),
                cwd=ROOT,
            )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self._said = b""

    @property
    def env(self) -> dict[str, str]:
        """What tells ranks of it."""
        return {ADDRESS: str(self.path)}

    @property
    def figures(self) -> dict[str, int]:
        """What it said last; empty before its first word."""
        assert self.process.stdout is not None
        self._said += self.process.stdout.read() or b""
        lines = self._said.splitlines()
        return dict(json.loads(lines[-1])) if lines else {}

    def wait(self, **figures: int) -> None:
        """Wait until it says these figures."""
        wait_until(lambda: figures.items() <= self.figures.items())

    def end(self) -> int:
        """Tell it to end; return its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(DEADLINE)


@contextlib.contextmanager
def keeping(folder: Path) -> Iterator[Keeping]:
    """Run a weight keeper; it is gone afterwards."""
    keeper = Keeping(folder)
    try:
        yield keeper
    finally:
        if keeper.process.poll() is None:
            keeper.process.send_signal(signal.SIGKILL)
        keeper.process.wait(DEADLINE)
        for pipe in (keeper.process.stdin, keeper.process.stdout):
            if pipe is not None:
                pipe.close()
