"""Find the last traceback in the end of a log."""

from __future__ import annotations

import re
from typing import NamedTuple

from panel.logs.decode import decode
from panel.logs.records import builtin

_HEAD = "Traceback (most recent call last):"
_LINKS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*))?")


class LogLine(NamedTuple):
    """One line of a log without its prefix."""

    offset: int
    number: int
    """From 1."""
    text: str


class Trace(NamedTuple):
    """A traceback; of a chain the first link, which is the cause of the others."""

    lines: tuple[LogLine, ...]
    type: str
    """The exception's class without its module."""
    message: str
    """First line of its message; empty where it has none, such as with a bare assert."""


def log_lines(data: bytes, offset: int, number: int) -> list[LogLine]:
    """Return the lines of the end of a log that begins at `offset` with line `number`."""
    lines = []
    for index, (at, text, _) in enumerate(decode(data, offset)):
        prefix = builtin(text)
        lines.append(LogLine(at, number + index, text[prefix.end :] if prefix else text))
    return lines


def last_trace(lines: list[LogLine]) -> Trace | None:
    """Return the last whole traceback of these lines, None where there is none."""
    heads = [index for index, line in enumerate(lines) if line.text == _HEAD]
    while heads:
        trace = _read(lines, heads.pop())
        if trace is None:
            continue
        # The links of a chain are printed cause first: walk back over them.
        while heads and (cause := _read(lines, heads[-1])) and _linked(lines, cause, trace):
            trace = cause
            heads.pop()
        return trace
    return None


def _read(lines: list[LogLine], head: int) -> Trace | None:
    for index in range(head + 1, len(lines)):
        text = lines[index].text
        if text.startswith(" "):
            continue
        match = _EXCEPTION.fullmatch(text)
        if match is None:
            return None
        name = match["type"].rpartition(".")[2]
        return Trace(tuple(lines[head : index + 1]), name, (match["message"] or "").strip())
    return None


def _linked(lines: list[LogLine], cause: Trace, effect: Trace) -> bool:
    first, last = lines[0].number, cause.lines[-1].number
    between = lines[last - first + 1 : effect.lines[0].number - first]
    return any(line.text in _LINKS for line in between)
