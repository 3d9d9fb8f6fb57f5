"""The logs screen: all sources of a launch in one order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType

from panel.logs.records import rank_of
from panel.screens.base import PanelScreen
from panel.screens.keys import BACK, key, rank_keys
from panel.screens.log_feed import LogFeed
from panel.screens.view import Desk, View
from panel.widgets.log_page import LogPage
from panel.widgets.log_view import SIDEWAYS, LogView
from panel.widgets.prompt import Prompt
from panel.widgets.spans import Row, Span, Tone

_TAIL = 256 << 10


def picked_words(picked: frozenset[str]) -> str:
    """Return whose logs are shown: `all ranks`, `rank 3`, `ranks 1 3`."""
    if not picked:
        return "all ranks"
    numbers = sorted(rank for source in picked if (rank := rank_of(source)) is not None)
    others = sorted(source for source in picked if rank_of(source) is None)
    ranks = [f"rank{'s' * (len(numbers) > 1)} {' '.join(map(str, numbers))}"] if numbers else []
    return " ".join([*ranks, *others])


def news_words(page: LogPage) -> Span:
    """Return whether a page follows, or how much came since it stands still."""
    if page.follows:
        return Span("follow", Tone.GOOD)
    return Span(f"+{page.news} new", Tone.WARN if page.news else Tone.DIM)


class LogsScreen(PanelScreen):
    """Follow, pick, search and look back."""

    NAME = "logs"
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        *rank_keys("logs"),
        key("slash", "search", "search", "Find text, case ignored", "logs.search", "/"),
        key("n", "find(1)", "next", "Next line with the text", "logs.next"),
        key("N", "find(-1)", "previous", "Line before with the text", "logs.previous"),
        key("f", "follow", "follow", "Stay at the end, or hold still", "logs.follow"),
        key("w", "wrap", "wrap", "Break long lines, or do not", "logs.wrap"),
        key("g,home", "home", "oldest", "Oldest line held; again for older ones", "logs.home", "g"),
        key("G,end", "end", "newest", "Newest line, then follow", "logs.end", "G"),
        key("up", "scroll(-1)", "up", "One line up; the view holds still", "logs.up", "↑"),
        key("down", "scroll(1)", "down", "One line down", "logs.down", "↓"),
        key("pageup", "page(-1)", "page up", "A screen up", "logs.pageup", "PgUp"),
        key("pagedown,space", "page(1)", "page down", "A screen down", "logs.pagedown", "PgDn"),
        key("left", "sideways(-1)", "left", "Scroll long lines back", "logs.left", "←"),
        key("right", "sideways(1)", "right", "Scroll long lines", "logs.right", "→"),
    ]

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.feed = LogFeed(desk.client, _TAIL)

    def compose_body(self) -> ComposeResult:
        """Yield the view and the search line."""
        yield LogView(self.feed.model, id="log")
        yield Prompt()

    def keys(self, view: View) -> Iterable[str]:
        """Offer the next hit while something is searched."""
        find = ("logs.next",) if self.feed.model.needle else ()
        return (
            "logs.rank0",
            "logs.all",
            "logs.search",
            *find,
            "logs.follow",
            "logs.wrap",
            "back",
            "help",
        )

    def show(self, view: View) -> None:
        """Paint the header and ask for what is new."""
        launch = view.launch
        if launch is None:
            self.titled((Span("nothing launched yet: Esc, then r launches", Tone.DIM),))
            return
        self.feed.turn_to(launch)
        title = (
            Span(f"#{launch.id} ", Tone.DIM),
            Span(f"{picked_words(self.feed.model.picked)}  "),
            *self._search_words(),
        )
        self.titled(title, self._place_words())
        self._pull()

    def _search_words(self) -> Row:
        needle = self.feed.model.needle
        if not needle:
            return ()
        number, hits = self._view.page.found
        words = f"{number}/{hits}" if number else f"{hits} lines"
        return Span("/", Tone.KEY), Span(f"{needle} "), Span(words, Tone.DIM if hits else Tone.BAD)

    def _place_words(self) -> Row:
        held = Span(f"{len(self.feed.model.visible):,} lines  ", Tone.DIM)
        return held, news_words(self._view.page), Span(" ")

    @property
    def _view(self) -> LogView:
        return self.query_one(LogView)

    @work(group="logs")
    async def _pull(self) -> None:
        launch = self.desk.view.launch
        if launch and await self.feed.pull(launch, holding=not self._view.page.follows):
            self._repaint()

    @work(group="logs")
    async def _pull_older(self) -> None:
        launch = self.desk.view.launch
        if launch and await self.feed.pull_older(launch):
            self._repaint()

    def _repaint(self) -> None:
        self._view.update()
        self.refresh_view()

    def action_pick(self, rank: int) -> None:
        """Show the log of this rank, or no longer."""
        self.feed.model.pick(self.feed.model.picked ^ {f"rank-{rank}"})
        self._repaint()

    def action_pick_all(self) -> None:
        """Show the logs of all."""
        self.feed.model.pick(frozenset())
        self._repaint()

    def action_scroll(self, lines: int) -> None:
        """Move by lines; at the oldest ask for older ones."""
        if not self._view.page.scroll(lines):
            self._pull_older()
        self._repaint()

    def action_page(self, direction: int) -> None:
        """Move by a screenful."""
        self.action_scroll(direction * max(self._view.page.height - 1, 1))

    def action_sideways(self, direction: int) -> None:
        """Move the text below the margin."""
        page = self._view.page
        page.left = max(page.left + direction * SIDEWAYS, 0)
        self._repaint()

    def action_home(self) -> None:
        """Go to the oldest line held, and ask for older ones when already there."""
        page = self._view.page
        if not page.scroll(0):
            self._pull_older()
        page.home()
        self._repaint()

    def action_end(self) -> None:
        """Go to the newest line and follow."""
        self._view.page.follow()
        self._repaint()

    def action_follow(self) -> None:
        """Follow the end, or hold this place."""
        page = self._view.page
        if page.follows:
            page.hold()
        else:
            page.follow()
        self._repaint()

    def action_wrap(self) -> None:
        """Break long lines, or do not."""
        page = self._view.page
        page.wrap, page.left = not page.wrap, 0
        self._repaint()

    def action_search(self) -> None:
        """Ask for text."""
        self.query_one(Prompt).open("/", self.feed.model.needle)

    def action_find(self, step: int) -> None:
        """Go to the next line with the text, or the one before."""
        self._view.page.find(step)
        self._repaint()

    def on_prompt_changed(self, event: Prompt.Changed) -> None:
        """Search while typing."""
        self.feed.model.search(event.text)
        self._view.page.forget_found()
        self._repaint()

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        """Go to the newest hit."""
        self.query_one(Prompt).close()
        self.action_find(-1)

    def on_prompt_closed(self) -> None:
        """Search nothing."""
        self.feed.model.search("")
        self._repaint()
