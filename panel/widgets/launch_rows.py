"""The next launch as rows: toggles, what differs, the plan and what speaks against it."""

from __future__ import annotations

from typing import NamedTuple

from panel.domain.flags import Flag
from panel.domain.plan import Change, Plan, Problem
from panel.domain.snapshot import LaunchView
from panel.widgets.draft import memory_flag, toggled, value_of
from panel.widgets.glyphs import Glyphs
from panel.widgets.memory_bar import letters, memory_bar
from panel.widgets.spans import BLANK, Row, Span, Tone, clip, fit, spread, wrap
from panel.widgets.words import size, spent, taken

FIELDS = 5
"""Rows of the form: three toggles, memory, all flags."""


class Field(NamedTuple):
    """A row of the form."""

    key: str
    label: str
    value: str
    was: str | None
    """Of the running launch; None where nothing runs."""
    on: bool | None = None
    """Of a toggle; None of other fields."""


class Page(NamedTuple):
    """The rows of form and plan."""

    rows: list[Row]
    targets: list[int]
    """Those that the cursor visits."""
    verdict: int
    """The one that says whether it can be launched."""


def page(
    plan: Plan,
    flags: list[Flag],
    against: LaunchView | None,
    trouble: str,
    width: int,
    glyphs: Glyphs,
) -> Page:
    """Return what the screen shows.

    `trouble`: why the plan is not that of the draft, or nothing.
    """
    memory_fraction = memory_flag(flags)
    fielded = {flag.name for flag in flags if flag.toggle or flag == memory_fraction}
    rows: list[Row] = [BLANK]
    rows += [_field(one, width, glyphs) for one in _fields(plan, flags, against)]
    rows += [_change(one, width, glyphs) for one in plan.changes if one.name not in fielded]
    rows += [BLANK, glyphs.rule((Span("plan", Tone.BRIGHT),), width)]
    rows += _memory(plan, width)
    if against is not None and against.memory:
        rows += _measured(against, width)
    if against is not None and against.start:
        rows += _start(against, width)
    verdict = len(rows)
    if trouble:
        rows.append((Span(" "), glyphs.bad, Span(f" {trouble}", Tone.BAD)))
    else:
        rows.append(_fits(plan, glyphs))
    targets = list(range(1, FIELDS + 1))
    for problem in problems(plan):
        if problem.remedy:
            targets.append(len(rows))
        rows += _problem(problem, width, glyphs)
    return Page(rows, targets, verdict)


def window(page: Page, top: int, room: int) -> list[Row]:
    """Return `room` rows from `top` on; the verdict takes the last one where it is not inside."""
    shown = page.rows[top : top + room]
    if not top <= page.verdict < top + room:
        shown[-1:] = [page.rows[page.verdict]]
    return shown


def problems(plan: Plan) -> tuple[Problem, ...]:
    """Return what speaks against the launch, and the drill that it would repeat."""
    fault = plan.values().get("fault") if "drill" in plan.chips else None
    if not fault:
        return plan.problems
    text = f"a drill: it will fail on purpose, fault {fault}; a takes that out"
    return (*plan.problems, Problem(severity="warning", text=text, remedy={"fault": ""}))


def command(plan: Plan, width: int, most: int, glyphs: Glyphs) -> list[Row]:
    """Return the command line under its title, in at most `most` rows."""
    lines = wrap(" ".join(plan.argv), width - 2)
    title = glyphs.rule((Span("command", Tone.BRIGHT),), width)
    return [BLANK, title, *((Span(f" {line}", Tone.DIM),) for line in lines[: most - 2])]


def _fields(plan: Plan, flags: list[Flag], against: LaunchView | None) -> list[Field]:
    def toggle(key: str, label: str, name: str) -> Field:
        now = toggled(plan.chips, name)
        was = toggled(against.chips, name) if against else None
        return Field(key, label, now, was, now != "off")

    fraction = memory_flag(flags)
    value = value_of(plan, fraction) if fraction else ""
    was = against.flags.get(fraction.name, fraction.default) if against and fraction else None
    return [
        toggle("e", "expert parallel", "ep"),
        toggle("s", "speculation", "spec"),
        toggle("g", "graph batch sizes", "graphs"),
        Field("m", "memory fraction", value, was),
        Field("/", f"all flags ({len(flags)})", "type to search", None),
    ]


def _field(one: Field, width: int, glyphs: Glyphs) -> Row:
    """Return a row of the form; what differs from the running launch is bright."""
    changed = one.was is not None and one.was != one.value
    sign = "  " if one.on is None else f"{glyphs.on if one.on else glyphs.off} "
    left = (
        Span(" ["),
        Span(one.key, Tone.KEY),
        Span(f"] {fit(one.label, 20)}"),
        Span(sign, Tone.GOOD if one.on else Tone.DIM),
        Span(
            clip(glyphs.plain(one.value), max(width - 50, 16), glyphs.more),
            Tone.BRIGHT if changed else Tone.PLAIN,
        ),
    )
    was = "" if one.was is None else f"was {one.was}" if changed else "same"
    return spread(
        left,
        (Span(clip(glyphs.plain(was), 22, glyphs.more) + " ", Tone.WARN if changed else Tone.DIM),),
        width,
    )


def _change(one: Change, width: int, glyphs: Glyphs) -> Row:
    """Return a row for a flag that has no toggle and differs."""
    left = (
        Span(f"     {fit(one.name, 22, glyphs.more)}"),
        Span(one.after if one.after is not None else "not passed", Tone.BRIGHT),
    )
    was = one.before if one.before is not None else "not passed"
    return spread(left, (Span(f"was {clip(was, 18, glyphs.more)} ", Tone.WARN),), width)


def _memory(plan: Plan, width: int) -> list[Row]:
    """Return the memory of one rank: a bar of the GPU, where it is known, and the categories."""
    lines = plan.memory
    if not lines:
        return []
    total = sum(line.predicted for line in lines)
    signs = letters(lines) if plan.fit else ("",) * len(lines)
    words = [
        (f"{sign} {line.category}".lstrip(), size(line.predicted))
        for sign, line in zip(signs, lines, strict=True)
    ] + [("sum", size(total))]
    rows: list[Row] = []
    if plan.fit is not None:
        bar = memory_bar(lines, plan.fit.total, max(width - 15, 1))
        rows.append((Span(" each GPU    ", Tone.DIM), Span(f"[{bar}]")))
    row: list[Span] = [Span(" each rank   ", Tone.DIM)]
    used = 13
    for name, amount in words:
        if used + len(name) + len(amount) + 3 > width:
            rows.append(tuple(row))
            row, used = [Span(" " * 13)], 13
        row += [Span(f"{name} ", Tone.DIM), Span(f"{amount}   ")]
        used += len(name) + len(amount) + 4
    return [*rows, tuple(row)]


def _measured(launch: LaunchView, width: int) -> list[Row]:
    """Return what the ranks of a launch took, beside what its own plan said."""
    lines = wrap(", ".join(taken(launch.memory)), width - 14)
    heads = [f" took #{launch.id}".ljust(13), *[" " * 13] * (len(lines) - 1)]
    return [(Span(head, Tone.DIM), Span(line)) for head, line in zip(heads, lines, strict=True)]


def _start(launch: LaunchView, width: int) -> list[Row]:
    """Return where the seconds of a launch's start went."""
    lines = spent(launch.start, width - 14)
    heads = [f" start #{launch.id}".ljust(13), *[" " * 13] * (len(lines) - 1)]
    return [(Span(head, Tone.DIM), Span(line)) for head, line in zip(heads, lines, strict=True)]


def _fits(plan: Plan, glyphs: Glyphs) -> Row:
    """Return whether the launch can work, in a word."""
    if plan.refused:
        return (
            Span(" "),
            glyphs.bad,
            Span(" cannot work: mend what is marked, or R launches all the same", Tone.BAD),
        )
    return (Span(f" {glyphs.ok} can be launched", Tone.GOOD),)


def _problem(one: Problem, width: int, glyphs: Glyphs) -> list[Row]:
    """Return what speaks against the launch; with a remedy its first row offers the key."""
    sign = {
        "refusal": glyphs.bad,
        "warning": Span("!", Tone.WARN),
        "note": Span("·" if glyphs.ok != "ok" else "-", Tone.DIM),
    }[one.severity]
    tone = Tone.PLAIN if one.severity == "note" else sign.tone
    room = width - 4 - (9 if one.remedy else 0)
    first, *rest = wrap(one.text, room) or [""]
    row: Row = (Span(" "), sign, Span(f" {first}", tone))
    if one.remedy:
        row = spread(row, (Span("a", Tone.KEY), Span(" apply ", Tone.DIM)), width)
    return [row, *((Span(f"   {line}", tone),) for line in rest)]
