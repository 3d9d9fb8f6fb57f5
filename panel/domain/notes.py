"""What operators write down about a launch; it stays with the evidence."""

from __future__ import annotations

import msgspec


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """One remark."""

    text: str
    t_unix: float = 0.0
    """When it was written; the supervisor fills it in."""


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """All of one launch, the oldest first."""

    notes: tuple[Note, ...] = ()
