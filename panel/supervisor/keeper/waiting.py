"""Before the order: a keeper at rest, which may never be needed."""

from __future__ import annotations

import os
import signal

from panel.supervisor.keeper.children import Children
from panel.supervisor.keeper.lines import Lines
from panel.supervisor.keeper.loop import Loop

STDIN = 0


class Waiting:
    """Waits for one line on standard input."""

    def __init__(self, loop: Loop, children: Children) -> None:
        self._loop = loop
        self._children = children
        self._lines = Lines()
        self._line: bytes | None = None
        self._over = False

    def line(self) -> bytes | None:
        """Return the line; None after the end of the input, SIGTERM or SIGINT."""
        self._loop.signalled = self._signalled
        self._loop.add(STDIN, self._read)
        while self._line is None and not self._over:
            self._loop.turn(None)
            self._children.reap_strays()
        self._loop.remove(STDIN)
        return None if self._over else self._line

    def _read(self) -> None:
        data = os.read(STDIN, 65536)
        lines = self._lines.feed(data)
        if lines:
            self._line = lines[0]
        self._over = self._over or not data

    def _signalled(self, sig: int) -> None:
        self._over = self._over or sig in (signal.SIGTERM, signal.SIGINT)
