"""A real terminal for tests: a pty with a screen that can be read."""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping
from fcntl import ioctl

import pyte

KEYS = {"enter": "\r", "escape": "\x1b", "ctrl+l": "\x0c", "down": "\x1b[B", "up": "\x1b[A"}


class Terminal:
    """Runs a command in a pty of a given size and keeps what a person would see."""

    def __init__(
        self, command: list[str], env: Mapping[str, str], columns: int = 80, rows: int = 24
    ) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.painted = 0
        """Bytes that the program has sent to the terminal."""
        self.painted_at = 0.0
        """When the last of them came; making a screen of them takes a while here."""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            full = {**os.environ, **env, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
            try:
                os.execvpe(command[0], command, full)
            finally:
                os._exit(127)

    @property
    def text(self) -> str:
        """The screen, a line each row, trailing blanks cut."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def press(self, *keys: str) -> None:
        """Type keys by name, or text."""
        for key in keys:
            os.write(self._fd, KEYS.get(key, key).encode())

    def wait_for(self, wanted: str | Callable[[str], bool], seconds: float = 30.0) -> str:
        """Return the screen once it shows `wanted`; else fail with what it shows."""
        shown = wanted if callable(wanted) else lambda text: wanted in text
        deadline = time.monotonic() + seconds
        while not shown(self.text):
            left = deadline - time.monotonic()
            if left <= 0 or not self._read(min(left, 0.5)):
                raise AssertionError(f"never saw {wanted!r}; the screen:\n{self.text}")
        return self.text

    def wait_quiet(self, pause: float = 0.7, seconds: float = 30.0) -> str:
        """Return the screen once nothing was painted for `pause` seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            before = self.painted
            self._read(pause)
            if self.painted == before:
                return self.text
        raise AssertionError(f"it never stops painting; the screen:\n{self.text}")

    def _read(self, seconds: float) -> bool:
        """Take in what was painted; False once the program has gone."""
        ready, _, _ = select.select([self._fd], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:
            return False
        self.painted_at = time.monotonic()
        self._stream.feed(data)
        self.painted += len(data)
        return bool(data)

    def wait(self, seconds: float = 10.0) -> int:
        """Return the exit code of the program (negative: a signal)."""
        deadline = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                raise AssertionError(f"the program stays; the screen:\n{self.text}")
            if self._fd >= 0:
                self._read(0.05)
            else:
                time.sleep(0.01)

    def hang_up(self) -> None:
        """Close the terminal as a lost connection does: the program gets SIGHUP."""
        os.close(self._fd)
        self._fd = -1

    def close(self) -> None:
        """End the program, whatever it is doing."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self._fd >= 0:
            os.close(self._fd)
