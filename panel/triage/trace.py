"""Tracebacks, put together from the lines of one speaker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_HEAD = "Traceback (most recent call last):"
_LINKS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_RAISED = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?::(?: (?P<message>.*))?)?$")
FRAME = re.compile(
    r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+)| in (?P<native>.+))?'
)
"""Of a traceback, or of a dump by faulthandler, which writes ` in` without a comma."""
_MESSAGE_LINES = 40
_LINES = 600
_HINTS = re.compile(r"Possible solutions?:")
FOREIGN = re.compile(
    r"/(?:torch|multiprocessing|asyncio|concurrent|uvloop|contextlib|importlib|threading|runners)\b"
)


class LogLine(NamedTuple):
    """A line without its prefix."""

    offset: int
    number: int
    """From 1."""
    text: str


class Link(NamedTuple):
    """One exception of a chain."""

    lines: tuple[LogLine, ...]
    """Head, frames, the exception and the rest of its message."""
    raised: int
    """Index of the line that names the exception."""
    type: str
    """Without its module."""
    message: str
    """Further lines included."""

    @property
    def said(self) -> str:
        """Type and message, or what was asserted where there is none, as they are searched."""
        return f"{self.type}: {self.message or self.short}"

    @property
    def short(self) -> str:
        """First line of the message, or for an exception without one the line that raised it."""
        first = self.message.partition("\n")[0].strip()
        if first:
            return first
        above = (line.text.strip() for line in reversed(self.lines[: self.raised]))
        return next((text for text in above if text.strip("^~ ")), "")

    @property
    def deciding(self) -> tuple[LogLine, ...]:
        """The line of the exception, then the last frame of the project and what it ran."""
        frames = [
            index for index, line in enumerate(self.lines[: self.raised]) if FRAME.match(line.text)
        ]
        own = [index for index in frames if not FOREIGN.search(self.lines[index].text)]
        chosen = [self.lines[self.raised]]
        if frames:
            last = (own or frames)[-1]
            chosen.append(self.lines[last])
            following = self.lines[last + 1 : self.raised]
            chosen += [line for line in following[:1] if not FRAME.match(line.text)]
        return tuple(chosen)


class TraceReader:
    """Reads the lines of one speaker; a chain is whole when `feed` or `end` returns it."""

    def __init__(self) -> None:
        self._links: list[Link] = []
        self._lines: list[LogLine] = []
        self._raised = -1
        self._linked = False
        self._hinting = False

    @property
    def open(self) -> bool:
        """Whether the next line may belong to a traceback."""
        return bool(self._lines or self._links)

    @property
    def framing(self) -> bool:
        """Whether frames are being read, which nothing interrupts but the exception."""
        return bool(self._lines) and self._raised < 0

    @staticmethod
    def begins(text: str) -> bool:
        """Return whether a traceback starts at the end of this line."""
        return text.rstrip().endswith(_HEAD)

    def feed(self, line: LogLine) -> Iterator[tuple[Link, ...]]:
        """Take the next line; yield the chain that it closed, if it did."""
        text = line.text
        if self.begins(text):
            if self._raised >= 0:
                self._close_link()
            if self._links and not self._linked:
                yield from self.end()
            self._lines, self._raised, self._linked, self._hinting = [line], -1, False, False
        elif not self._lines:
            self._linked = self._linked or text.strip() in _LINKS
        elif self._raised < 0:
            self._frame(line)
        else:
            self._message(line)

    def end(self) -> Iterator[tuple[Link, ...]]:
        """Yield what was read of a whole chain and forget it."""
        links = self.so_far()
        self._links, self._lines, self._raised, self._linked = [], [], -1, False
        if links:
            yield links

    def so_far(self) -> tuple[Link, ...]:
        """Return the chain as it would be if nothing came after it."""
        return (*self._links, self._link()) if self._raised >= 0 else tuple(self._links)

    def _frame(self, line: LogLine) -> None:
        self._lines.append(line)
        text = line.text
        if len(self._lines) > _LINES:
            self._lines = []
        elif len(self._lines) > 2 and text[:1] not in (" ", "", "^", "~") and _RAISED.match(text):
            self._raised = len(self._lines) - 1

    def _message(self, line: LogLine) -> None:
        text = line.text
        if text.strip() in _LINKS:
            self._close_link()
            self._linked = True
        elif not self._hinting and len(self._lines) - self._raised <= _MESSAGE_LINES:
            # The block of hints is the same whatever went wrong: no evidence.
            self._hinting = _HINTS.match(text) is not None
            if not self._hinting:
                self._lines.append(line)

    def _close_link(self) -> None:
        self._links.append(self._link())
        self._lines, self._raised = [], -1

    def _link(self) -> Link:
        match = _RAISED.match(self._lines[self._raised].text)
        assert match is not None
        rest = [line.text for line in self._lines[self._raised + 1 :] if line.text.strip()]
        message = "\n".join([(match["message"] or "").strip(), *rest]).strip("\n")
        name = match["type"].rpartition(".")[2]
        return Link(tuple(self._lines), self._raised, name, message)
