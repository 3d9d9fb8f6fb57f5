"""The keeper's side of the spawner: a process that has imported torch and forks the gang.

Its standard input stays open here for the life of the gang: the ranks inherit the reading end, and
its EOF tells them that their keeper is gone.
"""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from panel.domain.exits import exit_words
from panel.domain.redact import redact
from panel.supervisor.keeper.children import Children, Process, start
from panel.supervisor.keeper.journal import note
from panel.supervisor.keeper.lines import Lines
from panel.supervisor.keeper.loop import Loop

SOURCE = "spawner"
LEAVING_S = 1.0
"""Longest wait for the end of a spawner that was killed."""
LAST_WORDS_CHARS = 300
MOST_BYTES = 1 << 20


class Refusal(NamedTuple):
    """Why there is no gang, and the exit code of the spawner."""

    reason: str
    code: int | None


class Spawner:
    """The spawner from its start to its end. `news` is called when one of its fields changed."""

    def __init__(
        self, loop: Loop, children: Children, argv: list[str], env: Mapping[str, str]
    ) -> None:
        """Start it. Raises OSError."""
        self._loop = loop
        self._lines = Lines()
        self.ready = False
        self.pids: dict[str, int] | None = None
        """Process id by source, once it has forked."""
        self.refusal: Refusal | None = None
        self.news: Callable[[], None] = lambda: None
        self._log: str | None = None
        self._ordered = False
        self._gone = False
        self._end: int | None = None
        """Its exit code."""
        # What it says before anybody has ordered a launch belongs to the launch that comes.
        self._words = os.memfd_create("spawner's words")
        self._kept = 0

        reading, self._lifeline = os.pipe()
        answers, writing = os.pipe()
        os.set_blocking(answers, False)
        try:
            pid = start(argv, env, stdin=reading, stdout=writing, stderr=self._words)
        finally:
            os.close(reading)
            os.close(writing)
        self._answers: int | None = answers
        loop.add(answers, self._read)
        children.watch(pid, SOURCE, self._ended)
        self._process: Process | None = children.alive[pid]

    def log_to(self, path: str | None) -> None:
        """Keep all that it has said, and will say, in this log."""
        self._log, self._ordered = path, True
        self._keep_words()
        self._refuse()

    def order(self, argv: list[str], env: Mapping[str, str], logs: Mapping[str, str]) -> None:
        """Tell it what to become; to be called once it is ready."""
        message = {"argv": argv, "env": env, "logs": logs}
        try:
            os.write(self._lifeline, json.dumps(message).encode() + b"\n")
        except BrokenPipeError:
            return  # It is gone: its end says more.

    def leave(self) -> None:
        """End it now. What it has forked becomes ours before this returns.

        Its own way out, the end of an interpreter with torch in it, takes half a second of a CPU.
        """
        if self._process is None:
            return
        self._process.send(signal.SIGKILL)
        poll = select.poll()
        poll.register(self._process.pidfd, select.POLLIN)
        poll.poll(LEAVING_S * 1000)
        self._keep_words()

    def _read(self) -> None:
        while self._answers is not None:
            try:
                data = os.read(self._answers, 65536)
            except BlockingIOError:
                return
            if not data:
                self._loop.remove(self._answers)
                os.close(self._answers)
                self._answers = None
            for line in self._lines.feed(data):
                self._hear(line)

    def _hear(self, line: bytes) -> None:
        try:
            said = json.loads(line)
            if "error" in said:
                self.refusal = Refusal(str(said["error"]), int(said["code"]))
            elif "pids" in said:
                self.pids = {str(source): int(pid) for source, pid in said["pids"].items()}
            else:
                self.ready = bool(said["ready"])
        except (AttributeError, KeyError, TypeError, ValueError):
            note(f"the spawner said what nobody understands: {line[:200]!r}")
            return
        self.news()

    def _ended(self, _process: Process, code: int | None) -> None:
        self._process = None
        self._read()
        self._gone, self._end = True, code
        self._keep_words()
        if self._ordered:
            self._refuse()
        else:
            os.write(2, os.pread(self._words, MOST_BYTES, 0))

    def _refuse(self) -> None:
        """Say why there will be no gang, where the spawner has ended without a reason."""
        if self._gone and self.pids is None and self.refusal is None:
            reason = f"the spawner gave no reason: {exit_words(self._end)}{_last_words(self._log)}"
            self.refusal = Refusal(reason, self._end)
            self.news()

    def _keep_words(self) -> None:
        if self._log is None:
            return
        words = os.pread(self._words, MOST_BYTES, self._kept)
        self._kept += len(words)
        if words:
            with suppress(OSError), open(self._log, "ab") as log:
                log.write(words)


def _last_words(path: str | None) -> str:
    """Return the last line of a log as the end of a sentence; empty where there is none."""
    if path is None:
        return ""
    try:
        with open(path, "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - 4096))
            lines = log.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    words = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"; its log ends: {redact(words)[:LAST_WORDS_CHARS]}" if words else ""
