"""A verdict in lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from panel.domain.verdict import Evidence, Verdict
from panel.widgets.advice_words import advice_words, kind_of


def verdict_lines(verdict: Verdict, command: str = "") -> Iterator[str]:
    """Yield the headline, then what stands behind it, each part under its own word.

    `command`: what takes the flags of advice.
    """
    yield verdict.headline
    if verdict.note:
        yield f"  {verdict.note}"
    facts: list[str] = [verdict.status]
    if verdict.kind and verdict.kind != "operator_stop":
        facts.append(f"{verdict.kind} ({verdict.family})" if verdict.family else verdict.kind)
    facts.append(f"confidence {verdict.confidence}")
    if verdict.t_first is not None:
        facts.append(f"first sign {verdict.t_first:.2f} s after launch")
    if not verdict.final:
        facts.append("not final")
    yield "  " + ", ".join(facts)
    if verdict.cause:
        yield f"cause: {verdict.cause}"
    for evidence in verdict.evidence:
        yield f"  {_place(evidence)}: {evidence.text}"
    for advice in verdict.advice:
        yield f"{kind_of(advice)}: {advice_words(advice, command)}"
    for each in verdict.related:
        yield f"{'told by' if each.kind == verdict.kind else 'not'}: {each.kind}: {each.sign}"
    if verdict.secondary:
        yield "others: " + ", ".join(_others(verdict.secondary))
    for missing in verdict.missing:
        yield f"not known: {missing}"


def _place(evidence: Evidence) -> str:
    return f"{evidence.source}:{evidence.line}"


def _others(secondary: dict[str, str]) -> Iterator[str]:
    """Yield a label with all that bear it: eight ranks of a kind are one entry."""
    for label in dict.fromkeys(secondary.values()):
        names = [name for name, each in secondary.items() if each == label]
        ranks = sorted((name for name in names if name.isdecimal()), key=int)
        rest = [name for name in names if not name.isdecimal()]
        shown = [*([f"rank {' '.join(ranks)}"] if ranks else []), *rest]
        yield f"{', '.join(shown)}: {label}"
