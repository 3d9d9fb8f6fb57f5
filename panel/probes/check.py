"""One line of the doctor's report."""

from __future__ import annotations

from typing import Literal

import msgspec

Grade = Literal["pass", "warn", "fail", "info"]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at the node found."""

    name: str
    grade: Grade
    """`fail`: something will not work. `warn`: something will be missing. `info`: just so."""
    text: str
    """What was found and what it means."""
    mend: str = ""
    """The command that mends it."""
