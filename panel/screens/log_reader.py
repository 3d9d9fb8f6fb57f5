"""A screen that reads the logs of a launch: follows, goes anywhere, shows rows as one likes."""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType

from panel.domain.errors import PanelError
from panel.domain.wire import LaunchRecord
from panel.logs.merge import place
from panel.screens.base import PanelScreen
from panel.screens.log_feed import Feed, KeepUp, LogFeed
from panel.screens.log_keys import LOG_KEYS
from panel.screens.view import Desk, View
from panel.widgets.findings import Spot
from panel.widgets.log_look import LEAST_LANE, Look
from panel.widgets.log_model import Picked, Place
from panel.widgets.log_page import LogPage
from panel.widgets.log_times import clocks
from panel.widgets.log_traces import row_place
from panel.widgets.log_view import SIDEWAYS, LogView
from panel.widgets.prompt import Prompt
from panel.widgets.rows import Rows
from panel.widgets.spans import Span, Tone

_TAIL = 32 << 10
_MOST_STEPS = 8
_LEDGER = 200
_NEAR = 64
"""Rows of others that may stand between a line and its traceback."""


class LogReader(PanelScreen):
    """Reads; what is found and kept is the business of `LogsScreen`."""

    NAME = "logs"
    NOTES = (
        "The right edge is a map of the log's time, from launch (top) to now: a block where there "
        "are errors, the higher the more; a thin bar where the screen stands.",
    )
    BINDINGS: ClassVar[list[BindingType]] = LOG_KEYS

    def __init__(self, desk: Desk, spot: Spot | None = None) -> None:
        """`spot`: the place to begin at, in place of the end of all logs."""
        super().__init__(desk)
        self.feed = LogFeed(desk.client, _TAIL)
        self.look = Look(desk.glyphs)
        self.earlier: LaunchRecord | None = None
        """The launch shown, where it is not the newest."""
        self._spot = spot
        self._keep_up = KeepUp()
        self._filling = False
        if spot is not None:
            self.feed.pick(frozenset({spot.source}))

    def compose_body(self) -> ComposeResult:
        """Yield a line for what is wrong, the view and the prompt."""
        yield Rows([], id="log-trouble")
        yield LogView(self.feed.rows, self.look, id="log")
        yield Prompt()

    def holds(self, key: str) -> bool:
        """Whether no launch was turned to yet."""
        return self.desk.view.launch is not None and not self.feed.launch

    def show(self, view: View) -> None:
        """Turn to the launch to be shown, and ask for what is new."""
        if view.launch is None:
            self.titled((Span("nothing launched yet: Esc, then r launches", Tone.DIM),))
            return
        shown = self.earlier or view.launch
        if self.feed.turn_to(shown.id, shown.uuid):
            self.look.marks.clear()
            self.page.follow()
        if self.earlier is None:
            self.feed.grown(view.launch.log_sizes)
        self.turned(view)
        self.paint()
        self.pull()

    def turned(self, view: View) -> None:
        """Bring what is sought in line with the launch and the ranks shown."""

    def paint(self) -> None:
        """Paint the header and the view."""
        self.view.update()

    @property
    def source(self) -> Feed:
        """Where rows come from."""
        return self.feed

    @property
    def missing(self) -> PanelError:
        """Why a line that was gone to is not among the rows."""
        return PanelError("the line cannot be read any more", self.source.trouble)

    @property
    def view(self) -> LogView:
        """The widget."""
        return self.query_one(LogView)

    @property
    def page(self) -> LogPage:
        """Where it stands."""
        return self.view.page

    @property
    def place(self) -> Place | None:
        """The place of the current line."""
        row = self.page.current
        return place(row.first) if row is not None else None

    # What is read

    @work(group="logs")
    async def pull(self) -> None:
        """Read what is new, as long as there is anything."""
        await self._go_to_spot()
        await self._keep_up.run(lambda: self.source, lambda: not self.page.follows, self.moved)

    async def _go_to_spot(self) -> None:
        if self._spot is None:
            return
        (source, offset), self._spot = self._spot, None
        try:
            (record, *_) = await self.desk.client.log_records(self.feed.launch, [(source, offset)])
        except (PanelError, ValueError):
            return  # Nothing is there: the end of the logs does as well.
        if await self.feed.jump((record.t, source, offset)):
            rows = self.feed.rows.visible
            before = [at for at, row in enumerate(rows) if row.first.offset <= offset]
            self.page.go(before[-1] if before else 0, centre=True)
            self.paint()

    @work(group="fill")
    async def fill(self) -> None:
        """Read on at either end of what is held, while the page stands near it."""
        if self._filling:
            return
        self._filling = True
        try:
            for _ in range(_MOST_STEPS):
                if not await self._read_on():
                    return
                self.paint()
        finally:
            self._filling = False

    async def _read_on(self) -> bool:
        lines, last, near = self.page.lines(), len(self.feed.rows.visible) - 1, self.page.height
        if self.page.follows:
            return last < near and await self.source.older()
        if (not lines or lines[0].at < near) and await self.source.older():
            return True
        return (not lines or lines[-1].at > last - near) and await self.source.newer()

    @work(group="go", exclusive=True)
    async def go_to(self, at: Place) -> None:
        """Show the line at a place, wherever it is."""
        index = self.feed.rows.index_of(at)
        if index is None and await self.source.jump(at):
            index = self.feed.rows.index_of(at)
        if index is None:
            self.tell(self.missing)
            return
        self.page.go(index, centre=True)
        self.moved()

    def moved(self) -> None:
        """Paint, and read on where the page stands near an end of what is held."""
        self.paint()
        self.fill()

    def on_log_view_scrolled(self) -> None:
        """Follow the mouse wheel."""
        self.moved()

    # Where the page stands

    def action_move(self, lines: int) -> None:
        """Move by lines."""
        self.page.move(lines)
        self.moved()

    def action_page(self, direction: int) -> None:
        """Move by a screenful."""
        self.page.scroll(direction * max(self.page.height - 1, 1))
        self.moved()

    def action_sideways(self, direction: int) -> None:
        """Move the text below the margin."""
        self.page.left = max(self.page.left + direction * SIDEWAYS, 0)
        self.paint()

    @work(group="go", exclusive=True)
    async def action_home(self) -> None:
        """Go to the first line of the log."""
        if await self.source.home():
            self.page.home()
        self.moved()

    @work(group="go", exclusive=True)
    async def action_end(self) -> None:
        """Go to the last line and follow."""
        self.page.follow()
        self.paint()
        await self.source.end()
        self.moved()
        self.pull()

    def action_follow(self) -> None:
        """Follow the end, or hold this place."""
        if self.page.follows:
            self.page.hold()
            self.paint()
        else:
            self.action_end()

    # What rows look like

    def action_pick(self, rank: int) -> None:
        """Show the lines of this rank, or no longer."""
        self.pick(self.feed.rows.picked ^ {rank})

    def action_pick_all(self) -> None:
        """Show the lines of all."""
        self.pick(frozenset())

    def pick(self, picked: Picked) -> None:
        """Show the lines of these ranks and sources."""
        self.feed.pick(picked)
        self.page.count_anew()
        self.refresh_view()
        self.fill()

    def action_open(self) -> None:
        """Open what is closed at the current line, or close it."""
        row = self.page.current
        if row is None:
            return
        below = None if self.page.opens else self._traceback_below()
        if below is not None:
            self.page.go(below)
            row = self.feed.rows.visible[below]
        if self.page.follows:
            self.page.hold()
        self.feed.rows.toggle(row_place(row))
        self.moved()

    def _traceback_below(self) -> int | None:
        """Return the row of the traceback that the current line announces."""
        rows, at = self.feed.rows, self.page.current_index
        said, *later = rows.visible[at : at + _NEAR]
        for by, row in enumerate(later, start=1):
            if row.first.source == said.first.source:
                return at + by if rows.frames(row) else None
        return None

    def action_fold(self) -> None:
        """Show equal lines of several ranks as one row, or each."""
        self.look.lanes = ()
        self._fold(not self.feed.rows.folds)

    def action_lanes(self) -> None:
        """Show ranks side by side, or one under another."""
        named = sorted(each for each in self.feed.rows.picked if isinstance(each, int))
        ranks = tuple(named or range(self.feed.rows.world))
        least = LEAST_LANE * len(ranks)
        if not self.look.lanes and least > self.page.width:
            text = f"{len(ranks)} lanes need {least} columns, and {self.page.width} are free"
            self.tell(PanelError(text, "0-9 picks ranks"))
            return
        self.look.lanes = () if self.look.lanes else ranks
        self._fold(False)

    def _fold(self, folds: bool) -> None:
        at = None if self.page.follows else self.place
        self.feed.rows.folds = folds
        self.feed.rows.again()
        if at is not None:
            self.go_to(at)
        self.moved()

    def action_wrap(self) -> None:
        """Break long lines, or do not."""
        self.page.wrap, self.page.left = not self.page.wrap, 0
        self.paint()

    def action_clock(self) -> None:
        """Count times from something else."""
        known = clocks(self.feed.epoch)
        self.look.clock = known[(known.index(self.look.clock) + 1) % len(known)]
        self.paint()

    @work(group="earlier", exclusive=True)
    async def action_earlier(self, step: int) -> None:
        """Show the log of the launch before, -1, or of the one after, 1."""
        newest, now = self.desk.view.launch, self.feed.launch
        try:
            ledger = await self.desk.client.launches(_LEDGER)
        except PanelError as error:
            self.tell(error)
            return
        beyond = [record for record in ledger if (record.id - now) * step > 0]
        if not beyond or newest is None:
            self.tell(PanelError(f"no launch is known {'before' if step < 0 else 'after'} #{now}"))
            return
        nearest = min(beyond, key=lambda record: abs(record.id - now))
        self.earlier = None if nearest.id == newest.id else nearest
        self.refresh_view()
