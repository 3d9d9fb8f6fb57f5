"""One launch of the history in full."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from panel.domain.wire import LaunchRecord
from panel.screens.text import TextScreen
from panel.screens.view import Desk, View
from panel.widgets import history_rows
from panel.widgets.spans import Row, Span, Tone


class RecordScreen(TextScreen):
    """Flags, times, versions, and what differed from the launch before."""

    NAME = "history"

    def __init__(self, desk: Desk, record: LaunchRecord, before: LaunchRecord | None) -> None:
        super().__init__(desk)
        self._record = record
        self._before = before

    def show(self, view: View) -> None:
        """Paint the launch."""
        one = self._record
        began = datetime.fromtimestamp(one.t0_unix, UTC)
        title = (
            Span(f"#{one.id} "),
            Span(f"{one.request.profile}/{one.engine} {one.version}  ", Tone.DIM),
        )
        self.titled((*title, Span(f"{began:%Y-%m-%d %H:%M:%S} UTC", Tone.DIM)))
        super().show(view)

    def rows(self, view: View) -> Iterable[Row]:
        """Return the body."""
        return history_rows.details(self._record, self._before, self.text_width, self.desk.glyphs)
