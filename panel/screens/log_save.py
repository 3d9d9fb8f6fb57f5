"""Log lines on their way out: to a file, or as text for the clipboard. All of it is redacted."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import BinaryIO

from panel.client import Client
from panel.domain.errors import PanelError
from panel.domain.wire import LogRecord
from panel.logs.fold import Row, label
from panel.widgets.log_hits import Hits
from panel.widgets.log_model import Place

_ASKED = 500


def copied(rows: Iterable[Row], world: int) -> str:
    """Return rows as text, a line each; what several ranks said with who they are."""
    return "".join(
        f"{row.first.line}\n"
        if len(row.records) == 1
        else f"{label(row, range(world))} {row.text}\n"
        for row in rows
    )


def lines_of(records: Iterable[LogRecord]) -> str:
    """Return records as text, a line each."""
    return "".join(f"{one.prefix}{one.text}\n" for one in records)


def write_private(path: Path, text: str) -> None:
    """Write a file for its owner alone. Raises `PanelError`."""
    try:
        with _private(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise _unwritten(path, error) from None


async def save_found(client: Client, launch: int, hits: Hits, path: Path) -> int:
    """Write all hits to a file, in order; return how many lines. Raises `PanelError`."""
    lines = 0
    try:
        with _private(path) as file:
            async for text in _texts(client, launch, hits):
                file.write(text.encode())
                lines += text.count("\n")
    except OSError as error:
        raise _unwritten(path, error) from None
    return lines


async def _texts(client: Client, launch: int, hits: Hits) -> AsyncIterator[str]:
    at: Place | None = None
    while places := hits.after(at, _ASKED):
        at = places[-1]
        told = await client.log_records(launch, [place[1:] for place in places])
        order = {place[1:]: number for number, place in enumerate(places)}
        records = sorted(told, key=lambda one: (order[one.source, one.offset], one.part))
        yield lines_of(records)


def _private(path: Path) -> BinaryIO:
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def _unwritten(path: Path, error: OSError) -> PanelError:
    return PanelError(f"{path} cannot be written: {error.strerror}", "name another file")
