"""Starts the supervisor from a short command. Standard library only."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import panel
from panel.config.home import Home
from panel.domain.errors import PanelError, TimedOutError

DEADLINE_S = 15.0
_PAUSE_S = 0.02


def ensure_running(home: Home, deadline_s: float = DEADLINE_S) -> Path:
    """Return the socket of the supervisor of `home`; start one where none answers.

    It outlives the terminal. Raises `PanelError` with its last words where it does not come up.
    """
    if answers(home.socket):
        return home.socket
    home.prepare()
    child = _start(home)
    deadline = time.monotonic() + deadline_s
    while not answers(home.socket):
        # Somebody else may have started one at the same moment: that one will answer.
        if child.poll() is not None and not _held(home.lock):
            raise PanelError(f"the supervisor did not start: {last_words(home)}", f"see {home.log}")
        if time.monotonic() > deadline:
            raise TimedOutError(
                f"the supervisor does not answer after {deadline_s:.0f} s", f"see {home.log}"
            )
        time.sleep(_PAUSE_S)
    # It outlives us: nobody is going to wait for it.
    child.returncode = 0
    return home.socket


def answers(path: Path) -> bool:
    """True where somebody accepts connections on the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def last_words(home: Home) -> str:
    """Return the last line of the supervisor's log."""
    try:
        lines = home.log.read_bytes()[-4096:].decode(errors="replace").split("\n")
    except OSError:
        return "it left no log"
    return next((line for line in reversed(lines) if line.strip()), "its log is empty")


def _held(lock: Path) -> bool:
    """True where a supervisor holds the lock file."""
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _start(home: Home) -> subprocess.Popen[bytes]:
    log = os.open(home.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "panel.supervisor"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # The package is found there, installed or not, and no mount is held by our being in it.
            cwd=Path(panel.__file__).parents[1],
            start_new_session=True,
        )
    finally:
        os.close(log)
