"""The ledger: one row a launch in SQLite; readable without the daemon."""

from __future__ import annotations

import os
import sqlite3
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from panel.domain.errors import NotFoundError, PanelError
from panel.domain.states import LaunchState
from panel.domain.wire import LaunchRecord

_COLUMNS = LaunchRecord.__struct_fields__
_JSON = ("request", "flags", "phases", "versions", "env")
_CREATE = f"""
create table if not exists launches (id integer primary key, {", ".join(_COLUMNS[1:])})
"""
_USUAL_OF = 10
"""Launches of a profile that its usual time to ready is taken from."""


class Ledger:
    """The history. All methods raise `PanelError` where the file is damaged or the disk full."""

    def __init__(self, path: Path) -> None:
        """Open the file; create it where it is missing."""
        with _errors(path):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            # A short command waits for the supervisor's write, which takes milliseconds.
            self._db = sqlite3.connect(path, timeout=2.0, isolation_level=None)
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = normal")
            self._db.execute(_CREATE)
            self._add_columns()
        self._path = path

    def _add_columns(self) -> None:
        """Give the file of an older version the columns that it has not."""
        known = {row[1] for row in self._db.execute("pragma table_info(launches)")}
        for name in _COLUMNS:
            if name not in known:
                self._db.execute(f"alter table launches add column {name}")

    def put(self, record: LaunchRecord) -> None:
        """Write the row of a launch, new or known."""
        row = msgspec.to_builtins(record)
        values = [
            msgspec.json.encode(row[name]).decode() if name in _JSON else row[name]
            for name in _COLUMNS
        ]
        marks = ", ".join("?" * len(_COLUMNS))
        with _errors(self._path):
            self._db.execute(
                f"insert or replace into launches ({', '.join(_COLUMNS)}) values ({marks})", values
            )

    def last_id(self) -> int:
        """Return the highest number given; 0 before the first."""
        rows = self._rows("select coalesce(max(id), 0) from launches")
        return int(rows[0][0])

    def get(self, number: int) -> LaunchRecord:
        """Return one launch; -1 is the last, -2 the one before. Raises `NotFoundError`."""
        if number < 0:
            found = self._records("order by id desc limit 1 offset ?", -1 - number)
        else:
            found = self._records("where id = ?", number)
        if not found:
            raise NotFoundError(f"no launch {number}", "moepanel history lists them")
        return found[0]

    def recent(self, limit: int) -> list[LaunchRecord]:
        """Return the last launches, newest first."""
        return self._records("order by id desc limit ?", limit)

    def usual_ready_s(self, profile: str) -> float | None:
        """Return the median seconds to ready of the profile's last launches that got there."""
        rows = self._rows(
            "select ready_s from launches where ready_s is not null"
            " and json_extract(request, '$.profile') = ? order by id desc limit ?",
            profile,
            _USUAL_OF,
        )
        return round(statistics.median(row[0] for row in rows), 2) if rows else None

    def last_good(self, profile: str) -> LaunchRecord | None:
        """Return the newest launch of a profile that got ready and did not fail."""
        failed = [state.value for state in LaunchState if state.failed]
        marks = ", ".join("?" * len(failed))
        found = self._records(
            "where ready_s is not null and json_extract(request, '$.profile') = ?"
            f" and state not in ({marks}) order by id desc limit 1",
            profile,
            *failed,
        )
        return found[0] if found else None

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def _records(self, clause: str, *values: object) -> list[LaunchRecord]:
        rows = self._rows(f"select {', '.join(_COLUMNS)} from launches {clause}", *values)
        return [_record(self._path, row) for row in rows]

    def _rows(self, statement: str, *values: object) -> list[Any]:
        with _errors(self._path):
            return self._db.execute(statement, values).fetchall()


def _record(path: Path, row: tuple[Any, ...]) -> LaunchRecord:
    values = dict(zip(_COLUMNS, row, strict=True))
    with _errors(path):
        # A column that came with a later version is null in older rows.
        decoded = {name: msgspec.json.decode(values[name] or "{}") for name in _JSON}
        return msgspec.convert(values | decoded, LaunchRecord)


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError, msgspec.MsgspecError) as error:
        raise PanelError(f"{path}: {error}", "free disk space, or move the file away") from None
