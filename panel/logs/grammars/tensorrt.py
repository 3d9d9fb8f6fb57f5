"""TensorRT-LLM: `[07/12/2026-13:55:29] [TRT-LLM] [RANK 3] [I] text`, and its C++ parts without rank
or time: `[TensorRT-LLM][ERROR] text`."""

from __future__ import annotations

import re

from panel.logs.prefix import Grammar, Prefix
from panel.logs.severity import LETTERS, NAMES

_PYTHON = re.compile(
    r"(?:\[(?P<printed>\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\] )?\[TRT-LLM\] "
    r"(?:\[(?:RANK|MPI_Rank) (?P<rank>\d+)\] )?\[(?P<level>[FEWIVD])\](?: |$)"
)
_NATIVE = re.compile(r"\[TensorRT-LLM\]\[(?P<level>INFO|WARNING|ERROR|DEBUG|TRACE)\](?: |$)")


def tensorrt(line: str) -> Prefix | None:
    """Read the prefix of a line of TensorRT-LLM's."""
    if match := _NATIVE.match(line):
        return Prefix(match.end(), "", NAMES[match["level"]], None, None)
    match = _PYTHON.match(line)
    if match is None:
        return None
    rank = int(match["rank"]) if match["rank"] else None
    return Prefix(match.end(), match["printed"] or "", LETTERS[match["level"]], rank, None)


TENSORRT = Grammar(
    "tensorrt",
    tensorrt,
    re.compile(
        r"\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[TRT-LLM\] |(?<!\] )\[TRT-LLM\] \[|\[TensorRT-LLM\]\["
    ),
)
