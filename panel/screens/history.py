"""The history screen: every launch of this node, newest first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType

from panel.domain.errors import PanelError
from panel.domain.wire import LaunchRecord
from panel.screens.base import PanelScreen
from panel.screens.keys import BACK, key
from panel.screens.record import RecordScreen
from panel.screens.view import Desk, View
from panel.widgets import history_rows
from panel.widgets.rows import Rows
from panel.widgets.spans import BLANK, Span, Tone, clipped


class HistoryScreen(PanelScreen):
    """The ledger as a list."""

    NAME = "history"
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        key("up", "move(-1)", "up", "Newer launch", "history.up", "↑"),
        key("down", "move(1)", "down", "Older launch", "history.down", "↓"),
        key(
            "enter",
            "open",
            "open",
            "Flags, times, difference to the one before",
            "history.open",
            "Enter",
        ),
    ]

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.records: list[LaunchRecord] | None = None
        self._cursor = 0
        self._asked: tuple[int, str] | None = None
        self._trouble = ""

    def compose_body(self) -> ComposeResult:
        """Yield the list."""
        yield Rows(id="records")

    def keys(self, view: View) -> Iterable[str]:
        """Offer moving and opening."""
        return "history.open", "history.up", "history.down", "back", "help"

    def holds(self, key: str) -> bool:
        """Whether the list is still on its way."""
        return self.records is None and not self._trouble

    def show(self, view: View) -> None:
        """Paint the list; it is asked for again when the running launch changes its state."""
        launch = view.launch
        asked = (launch.id, launch.state.value) if launch else (0, "")
        if asked != self._asked and view.lost is None:
            self._asked = asked
            self._load()
        records, rows = self.records, self.query_one("#records", Rows)
        known = f"{len(records)} launch{'es' * (len(records) > 1)}" if records else ""
        self.titled((Span(known, Tone.DIM),))
        if not records:
            told = "nothing launched yet: Esc, then r launches"
            if records is None:
                told = self._trouble or "reading the ledger"
            rows.show([BLANK, (Span(f"   {told}", Tone.BAD if self._trouble else Tone.DIM),)])
            return
        room = max(rows.size.height - 1, 1)
        first = max(min(self._cursor - room // 2, len(records) - room), 0)
        befores = [*records[1:], None]
        shown = [
            history_rows.record(one, before, self.size.width, self.desk.glyphs)
            for one, before in list(zip(records, befores, strict=True))[first : first + room]
        ]
        head = clipped(history_rows.HEAD, self.size.width, self.desk.glyphs.more)
        rows.show([head, *shown], self._cursor - first + 1)

    @work(group="ledger", exclusive=True)
    async def _load(self) -> None:
        try:
            self.records, self._trouble = await self.desk.client.launches(), ""
        except PanelError as error:
            self._trouble = str(error)
        self.refresh_view()

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        self._cursor = min(max(self._cursor + by, 0), max(len(self.records or ()) - 1, 0))
        self.refresh_view()

    def action_open(self) -> None:
        """Show one launch in full."""
        if self.records:
            older = self.records[self._cursor + 1 : self._cursor + 2]
            before = older[0] if older else None
            self.app.push_screen(RecordScreen(self.desk, self.records[self._cursor], before))
