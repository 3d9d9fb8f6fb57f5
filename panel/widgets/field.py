"""A line to type in."""

from __future__ import annotations

from textual.widgets import Input


class Field(Input):
    """One row high; its cursor does not blink, since each blink would go over the wire."""

    def __init__(self, placeholder: str = "") -> None:
        super().__init__(compact=True, placeholder=placeholder, select_on_focus=False)
        self.cursor_blink = False
