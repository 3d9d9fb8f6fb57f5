"""Equal records of several ranks as one row, so that the one that differs is seen.

Pure and incremental: records go in as they arrive, each joins a row or begins one. Two records are
equal when their text is, with numbers and addresses masked.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from panel.logs.records import Record
from panel.logs.severity import Level

WINDOW_S = 2.0
"""How much later than the first of its row a record may arrive."""
MOST_OPEN = 4096
"""Rows that may still grow: in a storm, or without arrival times, the oldest ones close."""

_COMPARED = 64
"""Rows of most ranks that a row of few is compared with."""
_NUMBERS = re.compile(
    r"0[xX][0-9a-fA-F]+"
    r"|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
    r"|\d+(?:[.:,]\d+)*"
)

_Key = tuple[Level, str]


def masked(text: str) -> str:
    """Return `text` with `#` for each number, address and identifier."""
    return _NUMBERS.sub("#", text)


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Equal records, at most one of each rank, the first to arrive in front."""

    records: tuple[Record, ...]
    missing: tuple[int, ...] = ()
    """Ranks that did not say it; empty where only one did."""
    odd: tuple[int, ...] = ()
    """Ranks whose numbers differ while most ranks have the same, or that alone say this where all
    others say something else."""

    @property
    def first(self) -> Record:
        """The record that arrived first."""
        return self.records[0]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Who said it, ascending."""
        return tuple(sorted(r.rank for r in self.records if r.rank is not None))

    @property
    def text(self) -> str:
        """The text of all: as printed where they agree, else masked."""
        texts = {record.text for record in self.records}
        return self.first.text if len(texts) == 1 else masked(self.first.text)


class Fold:
    """Rows in the order in which their first records arrived."""

    def __init__(
        self, world: Iterable[int] = (), window_s: float = WINDOW_S, most_open: int = MOST_OPEN
    ) -> None:
        """`world`: the ranks there are; without it, those that have spoken."""
        self._world = set(world)
        self._size = len(self._world)
        self._window_s, self._most_open = window_s, most_open
        self._pending: deque[_Group] = deque()
        self._open: dict[_Key, deque[_Group]] = {}
        self._common: deque[_Group] = deque(maxlen=_COMPARED)
        """What most ranks said lately."""

    def add(self, records: Iterable[Record]) -> list[Row]:
        """Take the next records, in order of arrival; return the rows that take no more."""
        rows: list[Row] = []
        for record in records:
            while self._pending and self._settled(self._pending[0], record.t):
                rows.append(self._settle())
            self._join(record)
        return rows

    @property
    def pending(self) -> list[Row]:
        """The rows behind all that `add` returned, as they are now."""
        return [self._row(group) for group in self._pending]

    def _settled(self, group: _Group, now: float) -> bool:
        late = now - group.records[0].t > self._window_s
        return late or group.key is None or len(self._pending) >= self._most_open

    def _settle(self) -> Row:
        group = self._pending.popleft()
        if group.key is not None:
            self._close(group, group.key)
        return self._row(group)

    def _join(self, record: Record) -> None:
        if record.rank is None:
            self._pending.append(_Group(None, record))
            return
        self._world.add(record.rank)
        key = record.level, masked(record.text)
        waiting = self._open.setdefault(key, deque())
        group = next((group for group in waiting if record.rank not in group.ranks), None)
        if group is None:
            group = _Group(key, record)
            waiting.append(group)
            self._pending.append(group)
        else:
            group.records.append(record)
            group.ranks.add(record.rank)
        if 2 * len(group.ranks) > len(self._world) > 1 and not group.common:
            group.common = True
            self._common.append(group)
        if len(group.ranks) == self._size:
            self._close(group, key)

    def _close(self, group: _Group, key: _Key) -> None:
        group.key = None
        waiting = self._open[key]
        waiting.remove(group)
        if not waiting:
            del self._open[key]

    def _row(self, group: _Group) -> Row:
        missing = self._world - group.ranks if len(group.ranks) > 1 else ()
        odd = _odd_numbers(group.records) or self._alone(group)
        return Row(records=tuple(group.records), missing=tuple(sorted(missing)), odd=odd)

    def _alone(self, group: _Group) -> tuple[int, ...]:
        """Return the ranks of a row of few, where most said something else about then."""
        if not group.ranks or 2 * len(group.ranks) >= len(self._world):
            return ()
        t = group.records[0].t
        apart = any(
            group.ranks.isdisjoint(other.ranks) and abs(other.records[0].t - t) <= self._window_s
            for other in self._common
        )
        return tuple(sorted(group.ranks)) if apart else ()


class _Group:
    """A row in the making."""

    __slots__ = ("common", "key", "ranks", "records")

    def __init__(self, key: _Key | None, record: Record) -> None:
        self.key = key
        """None: it takes no more records."""
        self.records = [record]
        self.ranks = set() if record.rank is None else {record.rank}
        self.common = False


def _odd_numbers(records: Sequence[Record]) -> tuple[int, ...]:
    """Return the ranks whose text is not the one that most of at least three have."""
    if len(records) < 3:
        return ()
    (text, count), *others = Counter(record.text for record in records).most_common()
    if not others or 2 * count <= len(records):
        return ()
    return tuple(sorted(r.rank for r in records if r.text != text and r.rank is not None))


def fold(records: Iterable[Record], world: Iterable[int] = ()) -> Iterator[Row]:
    """Yield the rows of a stream of records as soon as they take no more."""
    folding = Fold(world)
    for record in records:
        yield from folding.add((record,))
    yield from folding.pending


def label(row: Row, world: Sequence[int]) -> str:
    """Return who said it: `×7 [012·4567]`, a digit a rank; `×11 [0-9 11]` of more than ten."""
    ranks = row.ranks
    if not ranks:
        return ""
    if max(world, default=0) > 9 or ranks[-1] > 9:
        return f"×{len(ranks)} [{spans(ranks)}]"
    places = sorted({*world, *ranks})
    return f"×{len(ranks)} [{''.join(str(rank) if rank in ranks else '·' for rank in places)}]"


def spans(ranks: Sequence[int]) -> str:
    """Return ascending ranks as `0-7 9`."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
