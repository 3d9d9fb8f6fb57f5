"""Records → the rows that a view shows: of whom, folded over ranks, tracebacks closed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from panel.logs.fold import Fold, Row
from panel.logs.records import Record
from panel.widgets.log_model import Picked, Place
from panel.widgets.log_traces import Collapsed, RowPlace, collapse, row_place


class LogRows:
    """What is shown of sorted records; `show` again when there are more of them."""

    def __init__(self, *, folds: bool = False) -> None:
        self.folds = folds
        """Equal records of several ranks are one row."""
        self.picked: Picked = frozenset()
        self.world = 0
        """Ranks that there are."""
        self.opened: set[RowPlace] = set()
        """Rows that show all they have."""
        self._collapsed = Collapsed([], {}, {}, {})
        self._settled: list[Row] = []
        self._fold = Fold()
        self._taken: Sequence[Record] = ()

    @property
    def visible(self) -> list[Row]:
        """The rows, oldest first."""
        return self._collapsed.rows

    def show(self, records: Sequence[Record]) -> None:
        """Take sorted records in place of those before; where they only grew at the end, it costs
        no more than what is new."""
        taken = self._taken
        grew = bool(
            taken
            and len(records) >= len(taken)
            and records[0] is taken[0]
            and records[len(taken) - 1] is taken[-1]
        )
        if not grew:
            self._settled, self._fold = [], Fold(range(self.world))
        fresh = records[len(taken) if grew else 0 :]
        self._taken = tuple(records)
        wanted = [record for record in fresh if self._is_picked(record)]
        if self.folds:
            self._settled += self._fold.add(wanted)
        else:
            self._settled += [Row(records=(record,)) for record in wanted]
        self._collapse()

    def again(self) -> None:
        """Make the rows anew, after `folds`, `picked` or `world` changed."""
        records, self._taken = self._taken, ()
        self.show(records)

    def toggle(self, place: RowPlace) -> None:
        """Open what is closed at this row, or close it."""
        self.opened ^= {place}
        self._collapse()

    def frames(self, row: Row) -> int:
        """Return how many frames of the traceback that this row begins are hidden."""
        return self._collapsed.frames.get(row_place(row), 0)

    def trace(self, place: RowPlace) -> list[Row]:
        """Return all rows of the closed traceback that begins at a place, or nothing."""
        return self._collapsed.traces.get(place, [])

    def index_of(self, place: Place) -> int | None:
        """Return which row shows the record at a place, opening the traceback that hides it."""
        for hidden, head in self._collapsed.heads.items():
            if hidden[:3] == place:
                self.toggle(head)
                break
        for index in range(len(self.visible) - 1, -1, -1):
            row = self.visible[index]
            if any((r.source, r.offset) == place[1:] for r in row.records):
                return index
        return None

    def _is_picked(self, record: Record) -> bool:
        return not self.picked or record.rank in self.picked or record.source in self.picked

    def _collapse(self) -> None:
        pending: Iterable[Row] = self._fold.pending if self.folds else ()
        self._collapsed = collapse([*self._settled, *pending], self.opened)
