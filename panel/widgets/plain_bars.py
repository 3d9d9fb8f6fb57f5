"""Scroll bars for terminals without block characters."""

from __future__ import annotations

from typing import ClassVar

from textual.scrollbar import ScrollBarRender


class PlainBars(ScrollBarRender):
    """Ends at whole cells."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "] * 8
