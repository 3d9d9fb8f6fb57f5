"""The GPU screen: eight rows, what is wrong with them, and which rank is slow."""

from __future__ import annotations

from collections.abc import Iterable

from textual import work

from panel.domain.snapshot import Snapshot
from panel.screens.series_feed import SeriesFeed
from panel.screens.text import TextScreen
from panel.screens.view import Desk, View
from panel.widgets import gpu_rows
from panel.widgets.gpu_alarms import alarms
from panel.widgets.gpu_table import SECONDS, gpu_table
from panel.widgets.spans import Row, Span, Tone


class GpusScreen(TextScreen):
    """All GPUs of the node; on a node without any, CPU and memory of the ranks."""

    NAME = "gpus"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._feed = SeriesFeed(desk.client, *gpu_rows.PREFIXES, limit=SECONDS)

    def show(self, view: View) -> None:
        """Paint the GPUs."""
        launch = view.launch
        title: Row = ()
        if launch is not None:
            title = self.named(launch)
            if view.lost is None and self._feed.due(launch):
                self._pull(view)
        names = {gpu.sample.name for gpu in view.snapshot.gpus} if view.snapshot else set()
        self.titled(title, (Span(f"{', '.join(sorted(names))} ", Tone.DIM),))
        super().show(view)

    def rows(self, view: View) -> Iterable[Row]:
        """Return the body."""
        if view.snapshot is None:
            return []
        return self._all(view.snapshot)

    def _all(self, snapshot: Snapshot) -> list[Row]:
        width, glyphs, series = self.text_width, self.desk.glyphs, self._feed.series
        slowest = gpu_rows.slowest(snapshot, width, glyphs)
        if not snapshot.gpus:
            return [*gpu_rows.without(snapshot, width), *slowest]
        return [
            *gpu_rows.overview(snapshot, series, width, glyphs),
            *gpu_table(snapshot.gpus, series, width, glyphs),
            *slowest,
            glyphs.rule((Span("alarms since the launch", Tone.BRIGHT),), width),
            *alarms(snapshot, width, glyphs),
        ]

    @work(group="series", exclusive=True)
    async def _pull(self, view: View) -> None:
        if view.launch and await self._feed.pull(view.launch):
            self.refresh_view()
