"""Drafts on the node screen: whether they pay, and why; an alarm when fewer are taken."""

from __future__ import annotations

from panel.domain.snapshot import Metrics, Speculation
from panel.widgets.spans import Row, Span, Tone, wrap

_SIMULATED = "SIMULATED"


def verdict(metrics: Metrics) -> Row:
    """Return what the second line says of speculation: `accept 2.6 (pays >1.7)`."""
    found, acceptance = metrics.speculation, metrics.acceptance
    if acceptance is None:
        return ()
    tone = Tone.PLAIN
    if found is not None and found.break_even is not None:
        tone = Tone.GOOD if acceptance > found.break_even else Tone.WARN
    note = pays(found)
    if found is not None and found.simulated is not None:
        tone, note = Tone.BAD, f" {_SIMULATED}"
    return Span(" accept ", Tone.DIM), Span(f"{acceptance:.1f}", tone), Span(note, tone)


def pays(found: Speculation | None) -> str:
    """Return above how many tokens a cycle drafts pay; `?` until the engine knows."""
    if found is None:
        return ""
    return f" (pays >{'?' if found.break_even is None else f'{found.break_even:.1f}'})"


def pane(metrics: Metrics | None, width: int) -> list[Row]:
    """Return one row with the parts of a cycle, and the alarm; nothing without speculation."""
    found = None if metrics is None else metrics.speculation
    if metrics is None or found is None:
        return []
    row: list[Span] = [Span(" drafts ", Tone.DIM), _length(found)]
    if found.accepted:
        shares = " ".join(f"{share:.0%}" for share in found.accepted)
        row += [Span("  accepted ", Tone.DIM), Span(shares)]
    for part, ms in found.cycle_ms.items():
        row += [Span(f"  {part} ", Tone.DIM), Span(f"{ms:.1f}")]
    if found.cycle_ms:
        row.append(Span(" ms", Tone.DIM))
    if found.collectives and width >= 100:
        row += [
            Span("  collectives ", Tone.DIM),
            Span(f"{found.collectives:.0f} in {found.collective_ms:.1f} ms a step"),
        ]
    return [tuple(row), *_alarm(metrics, found, width)]


def _length(found: Speculation) -> Span:
    if found.simulated is not None:
        return Span(f"{found.drafts}, acceptance {_SIMULATED} at {found.simulated:g}", Tone.BAD)
    if found.drafts == 0:
        return Span("0: do not pay now", Tone.WARN)
    return Span(str(found.drafts))


def _alarm(metrics: Metrics, found: Speculation, width: int) -> list[Row]:
    if found.fell_from is None:
        return []
    words = (
        f"acceptance fell from {found.fell_from:.1f} tokens a cycle to "
        f"{metrics.acceptance or 1:.1f}: other text, or sums over the ranks that go wrong; "
        "compare with spec=off"
    )
    first, *more = wrap(words, width - 4)
    return [
        (Span(" "), Span("!", Tone.WARN), Span(f" {first}", Tone.WARN)),
        *((Span(f"   {line}", Tone.WARN),) for line in more),
    ]
