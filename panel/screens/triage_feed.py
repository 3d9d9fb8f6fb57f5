"""Reads what a verdict is shown with: ends of logs, its place in them, source, earlier launches."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Mapping
from pathlib import Path

from panel.client import At, Client
from panel.domain.errors import PanelError
from panel.domain.notes import Note
from panel.domain.snapshot import LaunchView
from panel.domain.verdict import Verdict
from panel.domain.wire import LaunchRecord, LogWindow
from panel.triage.trace import Link
from panel.widgets.findings import Findings, good_before, records_of, spot_of, trace_at
from panel.widgets.triage_trace import around, last_own

_TAIL = 16 << 10
_BEFORE = 24 << 10
_WINDOW = 32 << 10
_CODE_LINES = 3
_CODE_BYTES = 4 << 20


async def gather(client: Client, launch: LaunchView, verdict: Verdict, host: str) -> Findings:
    """Return what can be read; what cannot is left empty. `host` is where the engine runs."""
    spot = spot_of(launch, verdict)
    tails, near, ledger, notes = await asyncio.gather(
        _logs(client, launch, dict.fromkeys(launch.log_sizes, "tail"), _TAIL),
        _logs(
            client, launch, {spot.source: max(spot.offset - _BEFORE, 0)} if spot else {}, _WINDOW
        ),
        _ledger(client),
        _notes(client, launch),
    )
    records = tuple(record for window in near for record in records_of(window))
    trace = trace_at(records, spot.offset) if spot else None
    local = trace is not None and host == platform.node()
    return Findings(
        tails=tuple(record for window in tails for record in records_of(window)),
        around=records,
        trace=trace,
        code=await asyncio.to_thread(_code, trace) if trace and local else {},
        record=next((one for one in ledger if one.id == launch.id), None),
        good=good_before(ledger, launch),
        notes=notes,
    )


async def _logs(
    client: Client, launch: LaunchView, at: Mapping[str, At], limit: int
) -> tuple[LogWindow, ...]:
    try:
        return await client.logs(launch.id, at, limit) if at else ()
    except PanelError:
        return ()


async def _ledger(client: Client) -> list[LaunchRecord]:
    try:
        return await client.launches()
    except PanelError:
        return []


async def _notes(client: Client, launch: LaunchView) -> tuple[Note, ...]:
    try:
        return (await client.notes(launch.id)).notes
    except PanelError:
        return ()


def _code(trace: Link) -> dict[int, str]:
    """Return the lines around the last own frame, where this node has that file of Python."""
    frame = last_own(trace)
    path = Path(frame.file) if frame else Path()
    # The log names the file: nothing but a plain file of source is read for it.
    if frame is None or path.suffix != ".py":
        return {}
    try:
        if not path.is_file() or path.stat().st_size > _CODE_BYTES:
            return {}
        return around(path.read_text(errors="replace"), frame, _CODE_LINES)
    except OSError:
        return {}
