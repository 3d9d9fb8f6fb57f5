"""Who failed first and when: a lane a process, from the first symptom to its exit. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from panel.domain.snapshot import LaunchView, ProcessView
from panel.domain.states import ProcessState
from panel.domain.verdict import Verdict
from panel.logs.records import Level, Record
from panel.widgets.findings import links
from panel.widgets.glyphs import Glyphs
from panel.widgets.spans import Row, Span, Tone, cells, clip, fit, right
from panel.widgets.words import span_of

_JITTER_S = 0.05
"""A victim's log may be seen to grow so long before the death that it tells of."""
_LEAD = 3
"""Cells of a strip before the first symptom."""
_LONGEST_NAME = len("frontend")
_LABELS = {"killed_by_gang_stop": "stopped"}


class Lane(NamedTuple):
    """One process; times are seconds since launch."""

    name: str
    label: str
    """root, victim, stopped, …; empty for one that only lives."""
    symptom: float | None
    end: float | None
    """None while it lives."""
    words: str

    @property
    def root(self) -> bool:
        """Whether it is to blame."""
        return self.label == "root"


class Lanes(NamedTuple):
    """All processes that matter, ranks in order, on one scale."""

    lanes: tuple[Lane, ...]
    begin: float
    """The first symptom."""
    last: float
    """The last exit, or now."""


class _Symptom(NamedTuple):
    t: float
    words: str


def lanes_of(launch: LaunchView, verdict: Verdict, tails: Iterable[Record]) -> Lanes:
    """Return the lanes of a launch; `tails` are the ends of its logs."""
    ends = [process.exit.t for process in launch.processes if process.exit]
    begin = min(ends, default=launch.t) if verdict.t_first is None else verdict.t_first
    said = _symptoms(tails, begin - _JITTER_S)
    lanes = [
        _lane(launch, process, verdict, said.get(_key(process)))
        for process in launch.processes
        if process.rank is not None or process.state is ProcessState.FAILED
    ]
    last = max([*ends, begin]) if all(lane.end is not None for lane in lanes) else launch.t
    return Lanes(tuple(lanes), begin, max(last, begin))


def _key(process: ProcessView) -> int | str:
    return process.source if process.rank is None else process.rank


def _symptoms(tails: Iterable[Record], since: float) -> dict[int | str, _Symptom]:
    """Return by rank, or by source, what was said from the first error on."""
    errors: dict[int | str, list[Record]] = {}
    for record in tails:
        key = record.source if record.rank is None else record.rank
        if key in errors or (record.level >= Level.ERROR and record.t >= since):
            errors.setdefault(key, []).append(record)
    return {key: _Symptom(said[0].t, _words(said)) for key, said in errors.items()}


def _words(said: Sequence[Record]) -> str:
    found = links(said)
    return found[0].said.partition("\n")[0] if found else said[0].text


def _lane(
    launch: LaunchView, process: ProcessView, verdict: Verdict, said: _Symptom | None
) -> Lane:
    rank, gone = process.rank, process.exit
    name = process.source if rank is None else str(rank)
    root = rank is not None and (verdict.root_ranks == "all" or rank in verdict.root_ranks)
    label = "root" if root else verdict.secondary.get(name, "")
    if said is None and gone is None and process.state is ProcessState.STALE:
        silent = process.beat_age or 0.0
        said = _Symptom(launch.t - silent, f"no heartbeat for {span_of(silent)}")
    symptom = said.t if said else None
    if symptom is None and gone and process.state is ProcessState.FAILED:
        symptom = gone.t
    if root and verdict.t_first is not None:
        symptom = verdict.t_first
    words = [said.words] if said else []
    if gone and (root or not said):
        words.append(gone.words)
    end = gone.t if gone else None
    return Lane(name, _label(label), symptom, end, ", ".join(words))


def _label(label: str) -> str:
    return _LABELS.get(label) or ("victim" if label.startswith("victim") else label)


def lane_rows(lanes: Lanes, width: int, glyphs: Glyphs) -> list[Row]:
    """Return a row a lane."""
    room = max(min(width // 2 - 16, 60), 16)
    name = max((len(_short(lane)) for lane in lanes.lanes), default=1)
    return [_row(lane, lanes, name, room, width, glyphs) for lane in lanes.lanes]


def _short(lane: Lane) -> str:
    return lane.name[:_LONGEST_NAME]


def _row(lane: Lane, lanes: Lanes, name: int, room: int, width: int, glyphs: Glyphs) -> Row:
    tone = Tone.BAD if lane.root else Tone.PLAIN if lane.label == "victim" else Tone.DIM
    at = lane.end if lane.symptom is None else lane.symptom
    after = "" if at is None else f"{at - lanes.begin:+.2f}s"
    if lane.root and at == lanes.begin:
        after = "0.00s"
    row = (
        Span(" "),
        Span(right(_short(lane), name), Tone.BRIGHT if lane.root else Tone.PLAIN),
        Span(" "),
        *_strip(lane, lanes, room, glyphs),
        Span(right(after, 9), tone),
        Span(f"  {fit(lane.label, 7)} ", tone),
    )
    return (*row, Span(clip(lane.words, width - cells(row), glyphs.more), tone))


def _strip(lane: Lane, lanes: Lanes, room: int, glyphs: Glyphs) -> Row:
    """Return life, symptom, silence and exit of a process in exactly `room` cells."""

    def cell(t: float | None) -> int:
        if t is None or lanes.last <= lanes.begin:
            return room if t is None else _LEAD
        # What matters happens at the beginning: the root of the share of time draws it apart.
        share = max(t - lanes.begin, 0.0) / (lanes.last - lanes.begin)
        return _LEAD + round(math.sqrt(min(share, 1.0)) * (room - 1 - _LEAD))

    end = cell(lane.end)
    symptom = min(cell(lane.symptom), end)
    row: list[Span] = [Span(glyphs.blocks[0] * symptom, Tone.DIM)]
    if lane.symptom is not None:
        sign = glyphs.bad if lane.root else Span("v")
        row += [sign, Span("." * (end - symptom - 1), Tone.DIM)]
    if lane.end is not None and (lane.symptom is None or end > symptom):
        row.append(Span("x", Tone.DIM))
    return (*row, Span(" " * (room - cells(row))))
