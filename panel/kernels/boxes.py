"""Memory that ranks receive in: each writes lines into the boxes of all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The panel reads this module too, to plan memory, and does without torch.
    import torch

WORD = 4
"""Bytes of data in a line of 8."""
_SETS = 2


@dataclass(frozen=True, slots=True)
class Boxes:
    """The boxes of all ranks as one of them sees them; all bytes are 0 before the first sum."""

    addresses: torch.Tensor
    """Where each rank's box is, int64 [ranks]. It is int64 [sets, from rank, rows, words]."""
    counts: torch.Tensor
    """Sums of each row so far, int32 [rows]; this rank's own."""
    rank: int
    programs: int
    """Most programs of a launch: not more than can run at the same time."""

    @property
    def rows(self) -> int:
        """Most rows of a sum."""
        return self.counts.shape[0]


def box_bytes(ranks: int, rows: int, row_bytes: int) -> int:
    """Return the size of one rank's box for sums of so many rows of so many bytes."""
    return _SETS * ranks * rows * (row_bytes // WORD) * 8
