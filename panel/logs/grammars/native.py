"""Lines that no engine's logger wrote: libraries, C++ and CUDA, the interpreter, the kernel."""

from __future__ import annotations

import re

from panel.logs.grammars.kernel import grave
from panel.logs.grammars.nccl import nccl
from panel.logs.grammars.tensorrt import tensorrt
from panel.logs.grammars.torch import agent, c10, excepthook
from panel.logs.prefix import Grammar, Prefix
from panel.logs.severity import NAMES, Level

_UVICORN = re.compile(r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL): {2,}")
_UCX = re.compile(r"\[[\w.-]+:(?P<pid>\d+):\d+:\d+\] ")
_DEEPEP = re.compile(r"DeepEP timeout check failed: rank = (?P<rank>\d+)")
_WARNING = re.compile(r"\S+\.py:\d+: [A-Z]\w*Warning: ")
_LAST_WORDS = re.compile(r"terminate called|Fatal Python error: |Segmentation fault|Aborted\b")


def native(line: str) -> Prefix | None:
    """Read what such a line says of itself; None where it may belong to the record before it."""
    found = nccl(line) or tensorrt(line) or c10(line) or excepthook(line) or agent(line)
    return found or _other(line)


def _other(line: str) -> Prefix | None:
    if match := _UVICORN.match(line):
        return Prefix(match.end(), "", NAMES[match["level"]], None, None)
    if match := _UCX.match(line):
        level = Level.ERROR if "Caught signal" in line else Level.INFO
        return Prefix(match.end(), "", level, None, None, int(match["pid"]))
    if match := _DEEPEP.match(line):
        return Prefix(0, "", Level.ERROR, int(match["rank"]), None)
    if _WARNING.match(line):
        return Prefix(0, "", Level.WARNING, None, None)
    if _LAST_WORDS.match(line) or grave(line):
        return Prefix(0, "", Level.ERROR, None, None)
    return None


PLAIN = Grammar("plain", native, re.compile(r"\[rank\d+\]:\["))
