"""Bytes of a log → clean lines: what a terminal would show of them, safe to put on one."""

from __future__ import annotations

import re
from typing import NamedTuple

LONGEST = 1 << 20
"""Bytes of a line; a longer one is cut, so that output without any newline cannot fill memory."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links, clipboard
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]"  # two letters; the head of a sequence without an end
)
_CONTROLS = (
    {code: 0x2400 + code for code in range(0x20)}
    | {0x7F: 0x2421}
    | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
    | dict.fromkeys((0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)
)
"""Control characters → visible ones; separators and direction marks would rearrange a screen."""


class Line(NamedTuple):
    """One physical line."""

    offset: int
    """Byte offset of its first byte in the log."""
    text: str
    """Without line end, escape sequences, tabs and control characters."""
    overwritten: tuple[str, ...] = ()
    """What carriage returns replaced by `text`: states of a progress bar, or a record before it."""


def clean(raw: bytes | bytearray) -> str:
    """Return the text of one line (bytes without the newline).

    Invalid UTF-8 becomes U+FFFD. Of a line that was redrawn by carriage returns the last state that
    shows something is left; a carriage return at the end belongs to the line end.
    """
    return to_line(0, raw).text


def to_line(offset: int, raw: bytes | bytearray) -> Line:
    """Return the line at `offset` that these bytes, without the newline, are."""
    text = raw.decode("utf-8", "replace")
    if text.isprintable():
        return Line(offset, text)
    states = [state for state in _ESCAPES.sub("", text).split("\r") if state] or [""]
    *overwritten, text = (state.expandtabs(8).translate(_CONTROLS) for state in states)
    return Line(offset, text, tuple(overwritten))


class LineDecoder:
    """Cut the bytes of a growing log into lines; any chunking gives the same lines."""

    def __init__(self, offset: int = 0) -> None:
        """`offset`: where in the log the first chunk will begin."""
        self._offset = offset
        self._held = bytearray()

    def feed(self, chunk: bytes) -> list[Line]:
        """Add the next bytes; return the lines that are now whole."""
        searched = len(self._held)
        self._held += chunk
        lines = []
        start = 0
        while True:
            newline = self._held.find(b"\n", max(start, searched), start + LONGEST + 1)
            if newline >= 0:
                end, following = newline, newline + 1
            elif len(self._held) - start > LONGEST:
                end = following = self._cut(start)
            else:
                break
            lines.append(to_line(self._offset + start, self._held[start:end]))
            start = following
        del self._held[:start]
        self._offset += start
        return lines

    @property
    def partial(self) -> Line | None:
        """The last line while it has no newline yet, such as a progress bar."""
        return to_line(self._offset, self._held) if self._held else None

    def _cut(self, start: int) -> int:
        """Return where to cut a line that is too long, without cutting a character."""
        end = start + LONGEST
        return next((at for at in range(end, end - 4, -1) if self._held[at] & 0xC0 != 0x80), end)


def decode(data: bytes, offset: int = 0) -> list[Line]:
    """Return the lines of `data`, which begins at `offset` of its log, the unfinished last one too.

    Serves windows: `decode(window.text.encode(), window.offset)`.
    """
    decoder = LineDecoder(offset)
    lines = decoder.feed(data)
    return [*lines, decoder.partial] if decoder.partial else lines
