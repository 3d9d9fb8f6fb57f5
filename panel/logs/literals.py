"""Which strings a text must contain for a regular expression to match it.

They are looked for first, by a search that is many times faster than any regular expression.
"""

from __future__ import annotations

import re
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

_SHORTEST = 2
"""One character stands in nearly every line."""
_MOST = 40
"""Each string costs a pass over the bytes."""
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)


class Required(NamedTuple):
    """What a match needs."""

    all_of: tuple[tuple[str, ...], ...] = ()
    """Of each group one string, printable ASCII, must be there; without groups nothing is known."""
    ignore_case: bool = False
    """The strings are in lower case, and compared so."""


def required(pattern: str, flags: int = 0) -> Required:
    """Return what `pattern` needs. Raises `re.error` where it is none."""
    parsed = parser.parse(pattern, flags)
    ignore = bool(parsed.state.flags & re.IGNORECASE) or _has_inner_case(parsed)
    groups = [
        tuple(dict.fromkeys(text.lower() for text in group)) if ignore else group
        for group in _groups(parsed)
    ]
    useful = [group for group in groups if min(map(len, group)) >= _SHORTEST]
    return Required(tuple(group for group in useful if len(group) <= _MOST), ignore)


def _groups(items: Any) -> list[tuple[str, ...]]:
    """Return the groups that a sequence needs, from left to right."""
    groups: list[tuple[str, ...]] = []
    run = ""
    for code, argument in [*items, (None, None)]:
        if code is op.LITERAL and 0x20 <= argument < 0x7F:
            run += chr(argument)
            continue
        groups += [(run,)] if run else []
        run = ""
        groups += _nested(code, argument)
    return groups


def _nested(code: Any, argument: Any) -> list[tuple[str, ...]]:
    if code is op.SUBPATTERN:
        return _groups(argument[3])
    if code is op.ATOMIC_GROUP:
        return _groups(argument)
    if code in _REPEATS and argument[0] > 0:
        return _groups(argument[2])
    if code is op.BRANCH:
        branches = [_groups(branch) for branch in argument[1]]
        if all(branches):
            best = [max(groups, key=lambda group: min(map(len, group))) for groups in branches]
            return [tuple(dict.fromkeys(text for group in best for text in group))]
    return []


def _has_inner_case(items: Any) -> bool:
    """Return whether a part like `(?i:…)` ignores case by itself."""
    for code, argument in items:
        if code is op.SUBPATTERN and (argument[1] & re.IGNORECASE or _has_inner_case(argument[3])):
            return True
        if code is op.BRANCH and any(_has_inner_case(branch) for branch in argument[1]):
            return True
        if code in _REPEATS and _has_inner_case(argument[2]):
            return True
        if code is op.ATOMIC_GROUP and _has_inner_case(argument):
            return True
    return False
