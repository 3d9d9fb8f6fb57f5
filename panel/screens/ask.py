"""One question in place of the key line, before something is stopped."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen

from panel.widgets.rows import Rows
from panel.widgets.spans import Span, Tone


class Ask(ModalScreen[bool]):
    """Yes by the key that asked, no by Escape; every other key waits."""

    def __init__(self, question: str, key: str) -> None:
        super().__init__()
        self._question = question
        self._key = key

    def compose(self) -> ComposeResult:
        """Show the question and both keys."""
        yield Rows(
            [
                (
                    Span(f" {self._question}  ", Tone.WARN),
                    Span(self._key, Tone.KEY),
                    Span(" yes  "),
                    Span("Esc", Tone.KEY),
                    Span(" no"),
                )
            ]
        )

    def on_key(self, event: events.Key) -> None:
        """Take the answer."""
        if event.character == self._key:
            self.dismiss(True)
        elif event.key == "escape":
            self.dismiss(False)
        event.stop()
