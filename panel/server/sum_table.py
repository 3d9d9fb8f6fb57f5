"""Which path adds up how many rows: what was measured, and the file that keeps it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

log = logging.getLogger(__name__)


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
    try:
        lines = _tables(file).get(key)
        if lines is None:
            return None
        timings = tuple(Timing(int(rows), str(path), float(us)) for rows, path, us in lines)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        log.warning("%s is not a file of tables of collectives: %s", file, error)
        return None
    if not timings or not {timing.path for timing in timings} <= set(paths):
        return None
    return SumTable(timings)


def write_table(file: Path, key: str, table: SumTable) -> None:
    """Keep a table beside those of other keys; a file that cannot be written is only warned of."""
    scratch = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        tables = _tables(file) | {key: [list(timing) for timing in table.timings]}
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(json.dumps(tables, indent=1))
        scratch.replace(file)
    except (OSError, ValueError, TypeError) as error:
        log.warning("the table of collectives is not kept in %s: %s", file, error)


def _tables(file: Path) -> dict[str, list[list[Any]]]:
    try:
        tables: dict[str, list[list[Any]]] = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    return tables
