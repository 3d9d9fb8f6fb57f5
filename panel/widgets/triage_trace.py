"""The traceback of the root: its last own frame with source around it, or all frames. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from panel.triage.trace import Link
from panel.widgets.glyphs import Glyphs
from panel.widgets.spans import Row, Span, Tone, clip, wrap

_FRAME = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_MESSAGE_ROWS = 3


class Frame(NamedTuple):
    """One call."""

    file: str
    line: int
    function: str
    code: str
    """What the log shows of the line, empty where it shows nothing."""
    offset: int
    """Of its line in the log."""

    @property
    def place(self) -> str:
        """Where it is, as short as that is clear."""
        return f"{'/'.join(self.file.split('/')[-2:])}:{self.line} {self.function}".rstrip()


def frames_of(link: Link) -> list[Frame]:
    """Return the frames of a traceback, the innermost last."""
    frames: list[Frame] = []
    for line in link.lines[: link.raised]:
        match = _FRAME.match(line.text)
        if match:
            frames.append(
                Frame(match["file"], int(match["line"]), match["function"] or "", "", line.offset)
            )
        elif frames and not frames[-1].code and line.text.strip("^~ "):
            frames[-1] = frames[-1]._replace(code=line.text.strip())
    return frames


def last_own(link: Link) -> Frame | None:
    """Return the innermost frame of the project's own code, which decides, else the innermost."""
    frames = frames_of(link)
    deciding = {line.offset for line in link.deciding}
    own = [frame for frame in frames if frame.offset in deciding]
    return next(reversed(own or frames), None)


def around(text: str, frame: Frame, by: int) -> dict[int, str]:
    """Return the lines of a source file around a frame; none where the file is another than that
    which ran."""
    lines = text.splitlines()
    if not 0 < frame.line <= len(lines) or lines[frame.line - 1].strip() != frame.code:
        return {}
    first = max(frame.line - 1 - by, 0)
    return dict(enumerate(lines[first : frame.line + by], first + 1))


def trace_title(who: str, link: Link, *, unfolded: bool) -> Row:
    """Return what stands above the traceback."""
    count = len(frames_of(link))
    told = f"all {count} frames" if unfolded else f"last frame of {count}"
    key = "folds" if unfolded else "unfolds"
    return (
        Span(f"{who}, {told} ", Tone.BRIGHT),
        Span("(", Tone.DIM),
        Span("Enter", Tone.KEY),
        Span(f" {key})", Tone.DIM),
    )


def trace_rows(
    link: Link, code: Mapping[int, str], width: int, glyphs: Glyphs, *, unfolded: bool
) -> list[Row]:
    """Return frames and exception; `code` are lines around the last own frame by number."""
    last = last_own(link)
    rows: list[Row] = []
    for frame in frames_of(link) if unfolded else [last] if last else []:
        tone = Tone.PLAIN if frame == last else Tone.DIM
        rows.append((Span(f" {clip(frame.place, width - 1, glyphs.more)}", tone),))
        if frame == last and code:
            rows += [
                _code(number, text, frame.line, width, glyphs) for number, text in code.items()
            ]
        elif frame.code:
            rows.append((Span(f"   {clip(frame.code, width - 3, glyphs.more)}", tone),))
    said = link.said if link.message else link.type
    texts = [line for text in said.split("\n") for line in wrap(text, width - 2)]
    shown = texts if unfolded else texts[:_MESSAGE_ROWS]
    return [*rows, *((Span(f" {text}", Tone.BAD),) for text in shown)]


def _code(number: int, text: str, line: int, width: int, glyphs: Glyphs) -> Row:
    here = number == line
    sign = glyphs.pointer if here else " "
    text = clip(text.expandtabs(4), width - 10, glyphs.more)
    return (
        Span(f"  {sign} ", Tone.KEY),
        Span(f"{number:>5} ", Tone.DIM),
        Span(text, Tone.BRIGHT if here else Tone.DIM),
    )
