"""Regular expressions of which a match never leaves a line.

They may be run over many lines at once, which costs less than a call a line.
"""

from __future__ import annotations

import re
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT)
_ANCHORS = (op.AT_BEGINNING, op.AT_END, op.AT_BOUNDARY)
_BREAKS = (op.CATEGORY_SPACE, op.CATEGORY_NOT_DIGIT, op.CATEGORY_NOT_WORD)
"""Categories that a newline belongs to."""


def over_lines(pattern: str, flags: int = 0) -> re.Pattern[str] | None:
    """Return a pattern that finds in lines put together what `pattern` finds in each; None where a
    match may depend on more than its line. Raises `re.error` where it is none."""
    parsed = parser.parse(pattern, flags)
    if parsed.state.flags & (re.DOTALL | re.MULTILINE) or not _stays(parsed):
        return None
    return re.compile(pattern, flags | re.MULTILINE)


def _stays(items: Any) -> bool:
    return all(_item_stays(code, argument) for code, argument in items)


def _item_stays(code: Any, argument: Any) -> bool:
    if code is op.LITERAL:
        return bool(argument != 10)
    if code is op.NOT_LITERAL:
        return bool(argument == 10)
    if code is op.ANY:
        return True
    if code is op.AT:
        return argument in _ANCHORS
    if code is op.IN:
        return not _holds_newline(argument)
    if code is op.SUBPATTERN:
        return not argument[1] & (re.DOTALL | re.MULTILINE) and _stays(argument[3])
    if code is op.BRANCH:
        return all(_stays(branch) for branch in argument[1])
    if code in _REPEATS:
        return _stays(argument[2])
    return False  # Looks around itself, or refers to itself.


def _holds_newline(items: Any) -> bool:
    """Return whether a set of characters holds the newline."""
    negated = items[0][0] is op.NEGATE
    named = any(
        (code is op.LITERAL and argument == 10)
        or (code is op.RANGE and argument[0] <= 10 <= argument[1])
        or (code is op.CATEGORY and argument in _BREAKS)
        for code, argument in items
    )
    return bool(named != negated)
