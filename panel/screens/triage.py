"""The triage screen: what the verdict on the launch says."""

from __future__ import annotations

from collections.abc import Iterable

from panel.screens.text import TextScreen
from panel.screens.view import View
from panel.widgets import triage_rows
from panel.widgets.spans import BLANK, Row, Span, Tone


class TriageScreen(TextScreen):
    """Who failed first, why, and what to change."""

    NAME = "triage"

    def show(self, view: View) -> None:
        """Paint the verdict."""
        launch = view.launch
        title = f"#{launch.id} {launch.request.profile}/{launch.engine}" if launch else ""
        self.titled((Span(title, Tone.DIM),))
        super().show(view)

    def rows(self, view: View) -> Iterable[Row]:
        """Return the verdict's rows."""
        launch = view.launch
        if launch is None or launch.verdict is None:
            return [BLANK, (Span("   nothing has failed", Tone.DIM),)]
        return triage_rows.verdict(launch, launch.verdict, self.text_width, self.desk.glyphs)
