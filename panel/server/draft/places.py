"""Where the features are kept that the draft head sees later, in one table.

The feature of a page's last token stays with the page, for whoever goes on from there: also for a
prompt that begins alike. Those of the last few other tokens wait in a ring of the sequence's seat.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from panel.server.plan import Segment

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Places:
    """Rows of the table: one for each page, then `recent` for each seat. Row 0 is nobody's."""

    pages: int
    """Page 0 included."""
    recent: int
    page_size: int

    def of(self, segment: Segment, positions: Ints) -> Ints:
        """Return the rows for the features of a sequence's positions; row 0 before the first."""
        table = np.frombuffer(segment.pages, np.int32)[None]
        seats = np.array([segment.seat])
        return self.among(table, seats, positions[:, None])[:, 0]

    def among(self, table: npt.NDArray[np.int32], seats: Ints, positions: Ints) -> Ints:
        """Return the rows for positions [n, sequences]; `table` [sequences, pages]."""
        ring = self.pages + seats * self.recent + positions % self.recent
        last = (positions + 1) % self.page_size == 0
        # A position may lie behind the pages only where its row is in the ring.
        number = np.minimum(positions // self.page_size, table.shape[1] - 1)
        rows: Ints = np.where(last, table[np.arange(len(table)), number], ring)
        rows[positions < 0] = 0
        return rows

    def slots(self, segment: Segment, positions: Ints) -> Ints:
        """Return the cache slots of a sequence's positions."""
        table = np.frombuffer(segment.pages, np.int32).astype(np.int64)
        slots: Ints = table[positions // self.page_size] * self.page_size
        return slots + positions % self.page_size
