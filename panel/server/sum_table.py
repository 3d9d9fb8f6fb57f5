"""Which path adds up how many rows, by what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from panel.server.figures import keep_figures, read_figures

_WHAT = "times of sums"


class Timing(NamedTuple):
    """How long a path takes for the sum of some rows."""

    rows: int
    path: str
    us: float


@dataclass(frozen=True, slots=True)
class SumTable:
    """What was measured; equal on all ranks, since it decides how they meet."""

    timings: tuple[Timing, ...]

    def path(self, rows: int) -> str:
        """Return the fastest path at the next number of rows that was measured, or at the last."""
        sizes = sorted({timing.rows for timing in self.timings})
        size = next((size for size in sizes if size >= rows), sizes[-1])
        return min((t for t in self.timings if t.rows == size), key=lambda t: t.us).path

    def lines(self, row_bytes: int) -> list[str]:
        """Return the table in words, a size a line, the path that is taken first."""
        lines = []
        for rows in sorted({timing.rows for timing in self.timings}):
            here = sorted((t for t in self.timings if t.rows == rows), key=lambda t: t.us)
            times = ", ".join(f"{t.path} {t.us:.1f} us" for t in here)
            lines.append(f"sums of {rows * row_bytes} B: {times}")
        return lines


def measured_rows(decode: int, verify: int, chunk: int, most: int) -> tuple[int, ...]:
    """Return the numbers of rows to measure, ascending: powers of 4 up to a verify step, and ends.

    `most` is where a path that is for small sums ends.
    """
    powers = [4**power for power in range(verify.bit_length()) if 4**power < verify]
    return tuple(sorted({1, *powers, decode, verify, min(most, verify), chunk}))


def read_table(file: Path, key: str, paths: Iterable[str]) -> SumTable | None:
    """Return the table kept under `key`; None where there is none of `paths` alone."""

    def parse(lines: list[list[Any]]) -> SumTable:
        return SumTable(tuple(Timing(int(rows), str(path), float(us)) for rows, path, us in lines))

    table = read_figures(file, key, parse, _WHAT)
    if table is None or not table.timings:
        return None
    return table if {timing.path for timing in table.timings} <= set(paths) else None


def write_table(file: Path, key: str, table: SumTable) -> None:
    """Keep a table beside those of other keys."""
    keep_figures(file, key, [list(timing) for timing in table.timings], _WHAT)
