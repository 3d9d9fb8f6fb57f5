"""A row of a log → spans: margin, who said it, text. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rich.cells import cell_len, chop_cells

from panel.logs.fold import Row as FoldedRow
from panel.logs.fold import spans
from panel.logs.records import Level
from panel.widgets.glyphs import UNICODE, Glyphs
from panel.widgets.log_times import WIDTHS, Clock, Epoch, shown
from panel.widgets.log_traces import RowPlace, row_place
from panel.widgets.spans import Row, Span, Tone, fit, right

LEAST_LANE = 10
"""Cells of a lane in which anything can be read."""
_NARROW = 60
_DIGITS = 10
"""Ranks that have a digit of their own."""
_TONES = {
    Level.DEBUG: Tone.DIM,
    Level.INFO: Tone.PLAIN,
    Level.WARNING: Tone.WARN,
    Level.ERROR: Tone.BAD,
}


@dataclass(slots=True)
class Look:
    """How rows are painted at present."""

    glyphs: Glyphs = UNICODE
    clock: Clock = Clock.LAUNCH
    epoch: Epoch = field(default_factory=Epoch)
    folds: bool = False
    world: int = 0
    lanes: tuple[int, ...] = ()
    """Ranks side by side; empty: one under another."""
    needle: re.Pattern[str] | None = None
    """Marked in the texts."""
    marks: set[RowPlace] = field(default_factory=set)

    def key(self) -> tuple[object, ...]:
        """Return what all painted rows depend on, but for marks."""
        return self.clock, self.epoch, self.folds, self.world, self.lanes, self.needle

    def margin_width(self, width: int) -> int:
        """Return how many cells stand before the text."""
        if width < _NARROW:
            return 4
        who = 1 if self.lanes else 14 if self.folds else 4
        return 1 + WIDTHS[self.clock] + who

    def margin(self, row: FoldedRow, width: int) -> Row:
        """Return what stands before the text of a row's first line."""
        mark = self.glyphs.pointer if row_place(row) in self.marks else " "
        head = Span(mark, Tone.KEY)
        if width < _NARROW:
            return head, *self._who(row)[1:4]
        time = Span(shown(row.first.t, self.clock, self.epoch), Tone.DIM)
        if self.lanes:
            return head, time, Span(" ")
        if not self.folds:
            return head, time, *self._who(row)
        return head, time, Span(" "), *self._folded(row), Span(" ")

    def body(self, row: FoldedRow, text: str, left: int, width: int) -> Row:
        """Return the cells of a text from `left` on; with lanes, in the lane of its rank."""
        tone = _TONES[row.first.level]
        rank = row.first.rank
        if not self.lanes:
            return self.marked(_from(text, left, width), tone)
        if rank not in self.lanes:
            name = f"{row.first.source}: "
            return Span(name, Tone.DIM), *self.marked(_from(text, left, width - len(name)), tone)
        lane = width // len(self.lanes)
        start = self.lanes.index(rank) * lane
        digit = Span(f"{rank} ", Tone.KEY)
        cut = fit(_from(text, left, lane - 2), lane - 3)
        return Span(" " * start), digit, *self.marked(cut, tone)

    def marked(self, text: str, tone: Tone) -> Row:
        """Return `text` with everything that the needle matches marked."""
        row, at = [], 0
        for match in self.needle.finditer(text) if self.needle else ():
            if match.end() > match.start():
                row += [Span(text[at : match.start()], tone), Span(match[0], Tone.HIT)]
                at = match.end()
        return (*row, Span(text[at:], tone))

    def _who(self, row: FoldedRow) -> Row:
        """Return the rank, or a letter of the source, in four cells."""
        record = row.first
        who = str(record.rank) if record.rank is not None else record.source[0]
        tone = Tone.DIM if record.level < Level.WARNING else _TONES[record.level]
        return Span(" "), Span(right(who, 2), tone), Span(" ")

    def _folded(self, row: FoldedRow) -> list[Span]:
        """Return `×7 012·4567!` in twelve cells: who said it, who did not, who differs."""
        ranks = row.ranks
        odd = Span("!" if row.odd else " ", Tone.BAD)
        if not ranks:
            return [Span(fit(row.first.source, 11), Tone.DIM), odd]
        count = Span(
            f"{self.glyphs.times}{len(ranks)}", Tone.DIM if len(ranks) == 1 else Tone.PLAIN
        )
        room = 11 - len(count.text)
        if max(self.world - 1, ranks[-1]) >= _DIGITS:
            return [count, Span(fit(f" {spans(ranks)}", room)), odd]
        digits = [self._digit(row, rank) for rank in range(max(self.world, ranks[-1] + 1))]
        pad = room - len(digits)
        return [count, Span(" " * pad), *digits, odd]

    def _digit(self, row: FoldedRow, rank: int) -> Span:
        if rank in row.missing:
            return Span(self.glyphs.gap, Tone.WARN)
        if rank not in row.ranks:
            return Span(" ")
        return Span(str(rank), Tone.BAD if rank in row.odd else Tone.DIM)


def _from(text: str, left: int, width: int) -> str:
    """Return the cells of `text` that are visible after scrolling sideways."""
    text = text[: left + width + 1] if text.isascii() else text[: 2 * (left + width)]
    if not left:
        return text
    if text.isascii():
        return text[left:]
    return "".join(chop_cells(text, left)[1:]) if cell_len(text) > left else ""
