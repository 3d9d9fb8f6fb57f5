"""One question in place of the key line, before something is stopped."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen

from panel.widgets.rows import Rows
from panel.widgets.spans import Span, Tone


class Ask(ModalScreen[bool]):
    """Yes by the key that asked, no by Escape; every other key waits."""

    def __init__(self, question: str, key: str, still: Callable[[], bool] = lambda: True) -> None:
        """`still`: whether what the question is about stands as it did when it was asked."""
        super().__init__()
        self._still = still
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

    def look_again(self) -> None:
        """Go away where the question is no longer about what it was about."""
        if self.is_current and not self._still():
            self.notify("what was asked about has changed: press the key again", markup=False)
            self.dismiss(False)

    def on_key(self, event: events.Key) -> None:
        """Take the answer."""
        event.stop()
        if not self._still():
            self.look_again()
        elif event.character == self._key:
            self.dismiss(True)
        elif event.key == "escape":
            self.dismiss(False)
