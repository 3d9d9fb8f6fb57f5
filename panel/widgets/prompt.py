"""One line of input above the key line: search, filter, a flag's value."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Input

from panel.widgets.field import Field
from panel.widgets.rows import Rows
from panel.widgets.spans import BLANK, Row, Span, Tone


class Prompt(Vertical):
    """Hidden until `open`. Enter submits, Escape closes; what was typed survives an error."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", show=False)]

    class Changed(Message):
        """The text is another."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Submitted(Changed):
        """Enter."""

    class Closed(Message):
        """Escape."""

    def compose(self) -> ComposeResult:
        """Lay out the label, the input and a note below."""
        with Horizontal():
            yield Rows([BLANK], id="prompt-label")
            yield Field()
        yield Rows([], id="prompt-note")

    def on_mount(self) -> None:
        """Start hidden."""
        self.display = False

    def open(self, label: str, text: str = "", note: str = "") -> None:
        """Ask for text; what is typed takes the place of `text` unless a key moves into it."""
        self.display = True
        self.query_one("#prompt-label", Rows).show([(Span(f" {label} ", Tone.KEY),)])
        self.query_one("#prompt-label", Rows).styles.width = len(label) + 2
        self._note((Span(f" {note}", Tone.DIM),) if note else BLANK)
        field = self.query_one(Input)
        field.value = text
        field.select_all()
        field.focus()

    def refuse(self, reason: str) -> None:
        """Say what is wrong with the text, and keep it."""
        self._note((Span(f" {reason}", Tone.BAD),))

    def close(self) -> None:
        """Hide."""
        self.display = False
        self.screen.set_focus(None)

    def action_close(self) -> None:
        """Hide, because the operator said so."""
        self.close()
        self.post_message(self.Closed())

    def on_input_changed(self, event: Input.Changed) -> None:
        """Pass on what is typed."""
        event.stop()
        self.post_message(self.Changed(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Pass on Enter."""
        event.stop()
        self.post_message(self.Submitted(event.value))

    def _note(self, row: Row) -> None:
        self.query_one("#prompt-note", Rows).show([row] if row else [])
