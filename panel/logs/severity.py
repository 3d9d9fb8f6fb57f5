"""How severe a line is: as printed, or inferred from its words where the format prints no level."""

from __future__ import annotations

import re
from enum import IntEnum

from panel.logs.literals import required


class Level(IntEnum):
    """Severity; comparable."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


NAMES = {level.name: level for level in Level} | {
    "CRITICAL": Level.ERROR,
    "FATAL": Level.ERROR,
    "WARN": Level.WARNING,
    "TRACE": Level.DEBUG,
    "CALL": Level.DEBUG,
}
"""Levels by the words that Python's loggers, NCCL and TensorRT-LLM print."""
LETTERS = {
    "F": Level.ERROR,
    "E": Level.ERROR,
    "W": Level.WARNING,
    "I": Level.INFO,
    "V": Level.DEBUG,
    "D": Level.DEBUG,
}
"""Levels by the letters of glog and TensorRT-LLM."""

TRACEBACK = "Traceback (most recent call last)"
_READ_CHARS = 400
"""Dumps of all arguments hold every word there is; a message says what it is at its beginning."""

ERRORS = (
    r"Traceback \(most recent call last\)|hit an exception|Exception in |SIGQUIT|sigquit"
    r"|crashed with exit code|died unexpectedly|died during|scheduler is dead"
    r"|[Ww]atchdog timeout|Health check failed|terminate called|Fatal Python error|Caught signal"
    r"|[Ss]egmentation fault|Segfault|core dumped|Assertion .{0,99} failed|device-side assert"
    r"|CUDA error|NCCL error|out of memory|OutOfMemory|DeepEP timeout|MPI_ABORT|closing signal SIG"
    r"|error: unrecognized arguments|\(exitcode: -?[1-9]|\bERROR\b|\bCRITICAL\b|\bFATAL\b"
)
"""Words of an error; where only some of a pattern's strings stand in a log, it is not read."""
WARNINGS = r"[Ww]arning\b|\bWARN(?:ING)?\b|[Dd]eprecated|[Ff]ail(?:ed)? to |falling back"

_ELSEWHERE = {
    Level.ERROR: ("[E", "[F", "[rank", "Error", "Exception", "Interrupt", "Exit", "NVRM", "SXid",
                  "oom", "Killed process", "Out of memory", "segfault", "aer_uncor", "Aborted",
                  "GPU", "torch/distributed/elastic"),
    Level.WARNING: ("[W", "Warning"),
}  # fmt: skip
"""What stands in lines whose level a grammar reads from something else than those words."""

_PRINTED = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)\b")
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)(?:: |$)")
_ERROR = re.compile(ERRORS)
_WARNING = re.compile(WARNINGS)


def inferred(text: str) -> Level:
    """Return the level of text before which none is printed."""
    text = text[:_READ_CHARS]
    printed = _PRINTED.match(text)
    if printed:
        return NAMES[printed[1]]
    if _RAISED.match(text) or _ERROR.search(text):
        return Level.ERROR
    return Level.WARNING if _WARNING.search(text) else Level.INFO


def suspects(level: Level) -> tuple[str, ...]:
    """Return strings of which at least one is in each record at or above `level`, a warning or an
    error; lines that continue a record have none."""
    words = required(ERRORS).all_of[0] + _ELSEWHERE[Level.ERROR]
    if level <= Level.WARNING:
        words += required(WARNINGS).all_of[0] + _ELSEWHERE[Level.WARNING]
    return tuple(word for word in words if not any(o in word for o in words if o != word))
