"""Regular expressions that may be run where nothing can stop them."""

from __future__ import annotations

from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
_MOST = 2


def bounded(pattern: str, flags: int = 0) -> bool:
    """Return whether matching takes at most some square of a text's length: few repeats, none in
    another. Raises `re.error` where it is none."""
    return _repeats(parser.parse(pattern, flags)) <= _MOST


def _repeats(items: Any) -> int:
    """Return how many repeats there are; those in others, and references, count as too many."""
    found = 0
    for code, argument in items:
        if code in _REPEATS:
            inner = _repeats(argument[2])
            found += 1 + (_MOST + 1) * inner if argument[1] > 1 else inner
        elif code is op.SUBPATTERN:
            found += _repeats(argument[3])
        elif code is op.BRANCH:
            found += sum(_repeats(branch) for branch in argument[1])
        elif code is op.ATOMIC_GROUP:
            found += _repeats(argument)
        elif code in (op.ASSERT, op.ASSERT_NOT):
            found += _repeats(argument[1])
        elif code in (op.GROUPREF, op.GROUPREF_EXISTS):
            found += _MOST + 1
    return found
