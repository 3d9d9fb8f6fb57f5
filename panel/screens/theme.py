"""The panel's own palette: dark, quiet, with room for one bright thing at a time."""

from __future__ import annotations

from textual.theme import Theme

QUIET = Theme(
    name="moepanel",
    primary="#6c9bd2",
    secondary="#7d8fa9",
    accent="#d7b46a",
    success="#7fb685",
    warning="#e0a458",
    error="#e06c75",
    foreground="#c9d1d9",
    background="#101418",
    surface="#181e24",
    panel="#1f262e",
    dark=True,
)
