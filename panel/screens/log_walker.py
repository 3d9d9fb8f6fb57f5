"""A screen that finds its way in logs: to patterns, errors, warnings and times."""

from __future__ import annotations

from collections.abc import Callable

from textual import work

from panel.domain.errors import PanelError
from panel.logs.merge import place
from panel.screens.finder import Finder
from panel.screens.log_reader import LogReader
from panel.screens.log_searches import Kind, Searches, Subject, beside
from panel.screens.log_words import typed_query
from panel.screens.view import Desk, View
from panel.widgets.findings import Spot
from panel.widgets.log_model import Place
from panel.widgets.log_times import moment
from panel.widgets.prompt import Prompt


class LogWalker(LogReader):
    """Finds; what is filtered and kept is the business of `LogsScreen`."""

    def __init__(self, desk: Desk, spot: Spot | None = None) -> None:
        """`spot`: the place to begin at, in place of the end of all logs."""
        super().__init__(desk, spot)
        self.searches = Searches(self, desk.client, self.found)
        self.answer: Callable[[str], object] = self._search
        """What the open prompt is for."""
        self._later: Callable[[], None] | None = None
        """What waits for a search to find more."""
        self._was_lost = False

    def turned(self, view: View) -> None:
        """Bring what is sought in line with the launch and the ranks shown."""
        if self._was_lost and view.lost is None:
            self.searches.again()
        self._was_lost = view.lost is not None
        live = self.earlier is None and view.live
        self.searches.turn_to(Subject(self.feed.launch, self.feed.rows.picked, live))
        self.searches.errors()

    def found(self, kind: Kind) -> None:
        """Take note of what a search found by now."""
        if self.stands:
            if self._later is not None:
                self._later()
            self.paint()

    def say(self, text: str) -> None:
        """Tell the operator something for some seconds."""
        self.notify(text, timeout=8, markup=False)

    # What is asked for

    def action_search(self) -> None:
        """Ask for a pattern."""
        finder = self.searches[Kind.SEARCH]
        self.ask_for("/", finder.query.pattern if finder else "", self._search)

    def action_moment(self) -> None:
        """Ask for a time."""
        self.ask_for("time", "", self._go_to_moment)

    def ask_for(self, sign: str, text: str, answer: Callable[[str], object]) -> None:
        """Open the prompt; `answer` gets what is typed, and raises what is wrong with it."""
        self.answer = answer
        self.query_one(Prompt).open(sign, text)

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        """Do what was asked for; what is wrong with it is said below the text."""
        try:
            self.answer(event.text)
        except PanelError as error:
            self.query_one(Prompt).refuse(str(error))
        else:
            self.query_one(Prompt).close()
            self.paint()

    def on_prompt_closed(self) -> None:
        """Search no longer."""
        if self.answer == self._search:
            self._search("")
        self.paint()

    # Finding

    def _search(self, pattern: str) -> None:
        if not pattern:
            self.searches.stop(Kind.SEARCH)
            self.look.needle = self._later = None
            return
        query = typed_query(pattern)
        self.look.needle = query.marker
        self._later = self._seek
        self.searches.start(Kind.SEARCH, query)

    def _seek(self) -> None:
        """Show the nearest hit up to the current line, else the first behind it."""
        finder = self.searches[Kind.SEARCH]
        if finder is None:
            return
        t, source, offset = self.place or (0.0, "", 0)
        at = beside(finder.hits, (t, source, offset + 1), -1)
        if at is None and not finder.searching:
            at = beside(finder.hits, None, 1)
        self._go(at, "no line matches", self._seek if finder.searching else None)

    def action_find(self, step: int) -> None:
        """Go to the next line that was found, or the one before; round at the ends."""
        finder = self.searches[Kind.SEARCH]
        if finder is None:
            self.tell(PanelError("nothing is sought", "/ asks for it"))
            return
        at = self._beside(finder, self.place, step)
        if at is None and not finder.searching:
            at = beside(finder.hits, None, step)
        self._walked(at, finder, lambda: self.action_find(step), "no line matches")

    def action_severe(self, step: int) -> None:
        """Go to the next error, or the one before."""
        errors = self.searches.errors()
        at = self._beside(errors, self._start, step)
        self._walked(at, errors, lambda: self.action_severe(step), f"no error {_where(step)}")

    def action_warning(self, step: int) -> None:
        """Go to the next warning, or the one before."""
        errors, warnings = self.searches.errors().hits, self.searches.warnings()
        at = self._beside(warnings, self._start, step)
        while at is not None and errors.number(at):
            at = beside(warnings.hits, at, step)
        self._walked(at, warnings, lambda: self.action_warning(step), f"no warning {_where(step)}")

    @property
    def _start(self) -> Place | None:
        """Where a walk begins: whoever follows has all of the log before and behind him."""
        return None if self.page.follows else self.place

    def _beside(self, finder: Finder, at: Place | None, step: int) -> Place | None:
        """Return the next hit or the one before that is no part of the current row."""
        if step > 0 and finder.searching:
            return None  # The newest are found first: a nearer one may still come.
        row = self.page.current
        inside = {place(record) for record in row.records} if row is not None and at else ()
        at = beside(finder.hits, at, step)
        while at in inside:
            at = beside(finder.hits, at, step)
        return at

    def _walked(
        self, at: Place | None, finder: Finder, again: Callable[[], None], otherwise: str
    ) -> None:
        self._go(at, otherwise, again if finder.searching else None)

    def _go(self, at: Place | None, otherwise: str, again: Callable[[], None] | None) -> None:
        """Go there; else try again when more is found, or say why not."""
        self._later = again if at is None else None
        if at is not None:
            self.go_to(at)
        elif again is None:
            self.say(otherwise)

    def _go_to_moment(self, text: str) -> None:
        if text:
            self._jump_to(moment(text, self.feed.epoch))

    @work(group="go", exclusive=True)
    async def _jump_to(self, t: float) -> None:
        if await self.source.jump((t, "", 0)):
            rows = self.feed.rows.visible
            index = next((at for at, row in enumerate(rows) if row.first.t >= t), len(rows) - 1)
            self.page.go(max(index, 0))
        self.moved()


def _where(step: int) -> str:
    return "behind this line" if step > 0 else "before this line"
