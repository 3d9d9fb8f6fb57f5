"""Versions and spans of them: `>=0.5.13,<0.6`."""

from __future__ import annotations

import re
from typing import NamedTuple

_TERM = re.compile(r"(>=|<=|<|>)(\d+(?:\.\d+)*)")


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, to be compared."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


class Span(NamedTuple):
    """Versions between bounds."""

    terms: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def parse(cls, text: str) -> Span:
        """Read a span; empty is every version. Raises ValueError."""
        terms = []
        for part in filter(None, text.replace(" ", "").split(",")):
            match = _TERM.fullmatch(part)
            if match is None:
                raise ValueError(f"{part!r} is no bound of versions; write >=0.5.13")
            terms.append((match[1], numbers(match[2])))
        return cls(tuple(terms))

    def holds(self, version: str) -> bool:
        """Return whether a version lies in the span; of an unknown one it is assumed."""
        own = numbers(version)
        return not own or all(_meets(own, sign, bound) for sign, bound in self.terms)


def _meets(own: tuple[int, ...], sign: str, bound: tuple[int, ...]) -> bool:
    return {">=": own >= bound, "<=": own <= bound, "<": own < bound, ">": own > bound}[sign]
