"""The memory tables of all ranks, side by side in shared memory."""

from __future__ import annotations

import msgspec

from panel.server.memory import Category
from panel.server.messages import RankMemory

_COLUMNS = list(Category)
_ROW = 2 * len(_COLUMNS) + 1


class MemoryReports:
    """One row a rank: predicted and measured bytes by category, and bytes of checkpoint read."""

    def __init__(self, memory: memoryview) -> None:
        self._cells = memory.cast("q")

    @staticmethod
    def size(ranks: int) -> int:
        """Bytes of the shared part."""
        return 8 * _ROW * ranks

    def put(
        self,
        rank: int,
        predicted: dict[Category, int],
        measured: dict[Category, int],
        weights_read: int,
    ) -> RankMemory:
        """Enter the row of `rank`; return it."""
        values = [*(predicted.get(c, -1) for c in _COLUMNS), *(measured[c] for c in _COLUMNS)]
        begin = rank * _ROW
        for number, value in enumerate([*values, weights_read]):
            self._cells[begin + number] = value
        return self._row(rank)

    def all(self) -> list[RankMemory]:
        """Return the rows of all ranks, once all have entered theirs."""
        return [self._row(rank) for rank in range(len(self._cells) // _ROW)]

    def _row(self, rank: int) -> RankMemory:
        row = self._cells[rank * _ROW : (rank + 1) * _ROW].tolist()
        count = len(_COLUMNS)
        predicted = zip(_COLUMNS, row[:count], strict=True)
        measured = zip(_COLUMNS, row[count : 2 * count], strict=True)
        return RankMemory(
            {str(name): value for name, value in predicted if value >= 0},
            {str(name): value for name, value in measured},
            row[-1],
        )


def describe(memory: RankMemory) -> str:
    """Return the table of one rank as a line of log: measured, and predicted where it differs."""
    parts = []
    for name, measured in memory.measured.items():
        predicted = memory.predicted.get(name, measured)
        text = f"{name} {_mib(measured)}"
        parts.append(text if predicted == measured else f"{text} (predicted {_mib(predicted)})")
    return f"memory in MiB: {', '.join(parts)}; checkpoint bytes read {memory.weights_read}"


def as_event(memory: RankMemory) -> dict[str, object]:
    """Return the fields of the event `memory`."""
    fields: dict[str, object] = msgspec.to_builtins(memory)
    return fields


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f}"
