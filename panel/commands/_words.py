"""Facts in words, for terminals of 80 columns."""

from __future__ import annotations

import unicodedata
from datetime import datetime

from panel.domain.snapshot import LaunchView, ProcessView


def date(unix: float) -> str:
    """Return `2026-01-31 12:00:00` in local time."""
    return datetime.fromtimestamp(unix).strftime("%Y-%m-%d %H:%M:%S")


def fit(text: str, columns: int) -> str:
    """Return as much of `text` as fits; wide characters take two columns."""
    if text.isascii():
        return text[:columns]
    for end, char in enumerate(text):
        wide = unicodedata.east_asian_width(char) in "WF"
        columns -= 2 if wide else not unicodedata.combining(char)
        if columns < 0:
            return text[:end]
    return text


def clip(text: str, columns: int) -> str:
    """Return `text` as it fits, with a sign of what was cut off."""
    whole = fit(text, columns)
    return whole if whole == text else f"{fit(text, columns - 1).rstrip()}…"


def phase(process: ProcessView) -> str:
    """Return `weights 43%`, `capture 3/8 bs 4`, or the bare phase."""
    if not process.total:
        return process.phase
    if process.detail:
        return f"{process.phase} {process.done}/{process.total} bs {process.detail}"
    return f"{process.phase} {100 * process.done // process.total}%"


def who(process: ProcessView, columns: int) -> str:
    """Return rank and phase, in columns; one without a rank has its name in their place."""
    if process.rank is not None:
        return f"{process.rank:>3}  {phase(process):<{columns - 5}}"
    return fit(f"{process.label} {phase(process)}", columns).ljust(columns)


def launch_title(launch: LaunchView) -> str:
    """Return `#17 tiny/builtin`."""
    return f"#{launch.id} {launch.request.profile}/{launch.engine}"
