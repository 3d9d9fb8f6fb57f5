"""The logs screen: what is sought, filtered, marked and kept of the logs of a launch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from textual import work

from panel.domain.errors import PanelError
from panel.screens.finder import Finder
from panel.screens.found_feed import FoundFeed
from panel.screens.keys import bindings_of
from panel.screens.log_feed import Feed
from panel.screens.log_save import copied, lines_of, save_found, write_private
from panel.screens.log_searches import Kind
from panel.screens.log_walker import LogWalker
from panel.screens.log_words import (
    filter_words,
    news_words,
    picked_words,
    search_words,
    typed_query,
)
from panel.screens.view import Desk, View
from panel.widgets.findings import Spot
from panel.widgets.log_column import column
from panel.widgets.log_traces import row_place
from panel.widgets.rows import Rows
from panel.widgets.spans import Row, Span, Tone, cells, clip

_COPY = "copied.txt"
_TROUBLES = 3
"""Rows that what is wrong takes at most."""


class LogsScreen(LogWalker):
    """Follow, pick, search, filter, fold and look back, over logs of any size."""

    def __init__(self, desk: Desk, spot: Spot | None = None) -> None:
        """`spot`: the place to begin at, in place of the end of all logs."""
        super().__init__(desk, spot)
        self._filtered: FoundFeed | None = None

    def keys(self, view: View) -> Iterable[str | tuple[str, str]]:
        """Offer what acts now, as far as the line is long."""
        page, rows = self.page, self.feed.rows
        offered = [
            ("logs.search", True),
            ("logs.next", self.searches[Kind.SEARCH] is not None),
            ("logs.filter", True),
            ("logs.invert", self._filtered is not None),
            ("logs.save", self._filtered is not None),
            ("logs.error", self._errors > 0),
            ("logs.open", page.opens),
            ("logs.follow", not page.follows),
            ("logs.rank0", rows.world > 1),
            ("logs.all", bool(rows.picked)),
            ("logs.fold", rows.world > 1),
            ("logs.mark", not page.follows),
            ("logs.moment", True),
            ("logs.wrap", True),
            ("logs.clock", True),
            ("logs.earlier", True),
        ]
        room = self.size.width - 1 - self._cells("back") - self._cells("help")
        for name, acts in offered:
            if acts and self._cells(name) <= room:
                room -= self._cells(name)
                yield name
        yield ("back", "all lines") if self._filtered else "back"
        yield "help"

    def _cells(self, name: str) -> int:
        binding = next(b for b in bindings_of(self, self.app) if b.id == name)
        return cells([Span(f"{binding.key_display or binding.key} {binding.description}  ")])

    def turned(self, view: View) -> None:
        """Bring what is sought and filtered in line with the launch and the ranks shown."""
        super().turned(view)
        finder = self.searches[Kind.FILTER]
        if finder and self._filtered and self._filtered.hits is not finder.hits:
            self._filter_anew(finder)

    @property
    def source(self) -> Feed:
        """All lines, or those that the filter lets through."""
        return self._filtered or self.feed

    @property
    def missing(self) -> PanelError:
        """Why a line that was gone to is not among the rows."""
        if self._filtered is None:
            return super().missing
        return PanelError("the filter hides that line", "Esc shows all")

    def paint(self) -> None:
        """Paint the header, the view and the keys."""
        if not self.feed.launch:
            return
        title = [
            Span(f"#{self.feed.launch} ", Tone.WARN if self.earlier else Tone.DIM),
            Span(f"{picked_words(self.feed.rows.picked)}  "),
        ]
        search, filtering = self.searches[Kind.SEARCH], self.searches[Kind.FILTER]
        title += filter_words(filtering) if filtering else ()
        title += search_words(search, self.place) if search else ()
        bad = self.desk.glyphs.bad
        errors: Row = (bad, Span(f" {self._errors:,}  ", Tone.BAD)) if self._errors else ()
        news = news_words(self.page, self.source.behind)
        self.titled(tuple(title), (*errors, news, Span(" ")))
        self.query_one("#log-trouble", Rows).show(self._troubles())
        self.look.epoch = self.feed.epoch
        self.view.column = self._column()
        super().paint()
        self.query_one("#keys", Rows).show([self.key_line()])

    def _troubles(self) -> list[Row]:
        """Return what is wrong, a row each, the last one for all that have none."""
        all_notes = [self.source.trouble, self.searches.trouble, *self.feed.model.notes.values()]
        notes = [*dict.fromkeys(note for note in all_notes if note)]
        shown = ["; ".join(notes[at:]) if at == _TROUBLES - 1 else note
                 for at, note in enumerate(notes[:_TROUBLES])]  # fmt: skip
        return [(Span(f" ! {clip(note, self.size.width - 4)}", Tone.WARN),) for note in shown]

    def _column(self) -> list[Span]:
        rows, lines = self.feed.rows.visible, self.page.lines()
        if not lines:
            return [Span(" ")] * self.page.height
        shown = rows[lines[0].at].first.t, rows[lines[-1].at].first.t
        launch = self.desk.view.launch
        end = max(launch.t if launch and not self.earlier else 0.0, rows[-1].first.t)
        counts = self.searches.errors().hits.histogram(end, self.page.height)
        return column(counts, shown, end, self.desk.glyphs)

    @property
    def _errors(self) -> int:
        finder = self.searches[Kind.ERRORS]
        return finder.hits.count if finder else 0

    def found(self, kind: Kind) -> None:
        """Take note of what a search found by now."""
        if self.stands and kind is Kind.FILTER:
            self.pull()
        super().found(kind)

    # Filtering

    def action_filter(self) -> None:
        """Ask for a pattern of which only the lines are shown."""
        finder = self.searches[Kind.FILTER]
        self.ask_for("&", finder.query.pattern if finder else "", self._filter)

    def action_back(self) -> None:
        """Show all lines again, else leave."""
        if self._filtered is None:
            super().action_back()
        else:
            self._filter("")
            self.paint()

    def on_prompt_closed(self) -> None:
        """Search or filter no longer."""
        if self.answer == self._filter:
            self._filter("")
        super().on_prompt_closed()

    def _filter(self, pattern: str) -> None:
        old = self.searches[Kind.FILTER]
        if pattern:
            query = typed_query(pattern, invert=old is not None and old.query.invert)
            self._filter_anew(self.searches.start(Kind.FILTER, query))
        elif self._filtered is not None:
            at, follows = self.place, self.page.follows
            self.searches.stop(Kind.FILTER)
            self._filtered, self.feed.idle = None, False
            self.feed.show()
            self.pull()
            if at is not None and not follows:
                self.go_to(at)

    def action_invert(self) -> None:
        """Show the lines that do not match, or again those that do."""
        finder = self.searches[Kind.FILTER]
        if finder is None:
            self.tell(PanelError("nothing is filtered", "& asks for a pattern"))
            return
        query = typed_query(finder.query.pattern, invert=not finder.query.invert)
        self._filter_anew(self.searches.start(Kind.FILTER, query))
        self.paint()

    def _filter_anew(self, finder: Finder) -> None:
        rows = self.feed.rows
        self._filtered = FoundFeed(self.desk.client, self.feed.launch, rows, finder.hits)
        self.feed.idle = True
        rows.show([])
        self.page.follow()
        self.pull()

    # Keeping

    def action_mark(self) -> None:
        """Mark the current line, or no longer."""
        row = self.page.current
        if row is not None:
            self.look.marks ^= {row_place(row)}
            self.paint()

    def action_marked(self, step: int) -> None:
        """Go to the next marked line, or the one before; round at the ends."""
        marks = sorted(mark[:3] for mark in self.look.marks)
        here = self.place
        if not marks or here is None:
            self.tell(PanelError("no line is marked", "m marks one"))
            return
        beyond = [mark for mark in marks if (mark > here if step > 0 else mark < here)]
        self.go_to((beyond or marks)[0 if step > 0 else -1])

    @work(group="copy", exclusive=True)
    async def action_copy(self) -> None:
        """Copy the marked lines, or the current one, to the clipboard and to a file.

        Of a traceback that is closed all lines are copied.
        """
        rows, row, path = self.feed.rows, self.page.current, Path(self.feed.folder, _COPY)
        try:
            if self.look.marks:
                marked = await self.desk.client.log_records(self.feed.launch, self._marked())
                text = lines_of(marked)
            else:
                text = copied(rows.trace(row_place(row)) or [row], rows.world) if row else ""
            self.app.copy_to_clipboard(text)
            write_private(path, text)
        except PanelError as error:
            self.tell(error)
        else:
            count = text.count("\n")
            self.say(f"{count} line{'s' * (count != 1)} copied, and saved as {path}")

    def _marked(self) -> list[tuple[str, int]]:
        """Return the places of all marked lines, and of what is closed below them."""
        places = set[tuple[str, int]]()
        for mark in self.look.marks:
            places.add(mark[1:3])
            for row in self.feed.rows.trace(mark):
                places |= {(record.source, record.offset) for record in row.records}
        return sorted(places)

    def action_save(self) -> None:
        """Ask for a file."""
        if self._filtered is None:
            self.say(f"nothing is filtered; the logs themselves are in {self.feed.folder}")
        else:
            path = Path(self.feed.folder, f"filtered-{self.feed.launch}.txt")
            self.ask_for("save as", str(path), self._save)

    @work(group="save", exclusive=True)
    async def _save(self, text: str) -> None:
        finder = self.searches[Kind.FILTER]
        if not text or finder is None:
            return
        path = Path(text).expanduser()
        try:
            lines = await save_found(self.desk.client, self.feed.launch, finder.hits, path)
        except PanelError as error:
            self.tell(error)
        else:
            still = "; the search was not through yet" if finder.searching else ""
            self.say(f"{lines:,} lines saved as {path}{still}")
