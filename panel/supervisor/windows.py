"""Windows into logs: whole lines, redacted, with the times at which they arrived."""

from __future__ import annotations

import codecs
import contextlib
import os
from collections.abc import Iterable, Iterator

from panel.domain.errors import PanelError
from panel.domain.redact import redact
from panel.domain.wire import LogRecord, LogWindow, Moment
from panel.logs.files import LogFile, open_log
from panel.logs.index import Window, tail, window
from panel.logs.merge import Arrivals
from panel.logs.pick import Picker
from panel.logs.records import Record, RecordReader
from panel.supervisor.arrivals import arrivals, offset_at
from panel.supervisor.sources import Manner, Source

MOST_BYTES = 1 << 20
_SUBSTITUTE = "moepanel.substitute"
"""SUB stands for a byte that is no UTF-8: one byte for one, so that offsets stay valid."""


At = int | Moment | None
"""Where a window begins: at the line of an offset, at the last line before a moment; None: as late
as its size allows."""


def read_window(source: Source, manner: Manner, at: At, limit: int) -> LogWindow:
    """Return about `limit` bytes of whole lines.

    A last line without newline counts when nothing follows it; a line longer than the window comes
    whole, one longer than a megabyte is cut. What cannot be read is a window that says why.
    """
    limit = max(1, min(limit, MOST_BYTES))
    try:
        with contextlib.closing(open_log(source.path)) as file:
            size, inode = file.size(), os.stat(source.path).st_ino
            piece, asked = _piece(file, source, at, limit, size)
    except PanelError as error:
        return unreadable(source.name, str(error))
    except OSError as error:
        return unreadable(source.name, f"{source.path}: {error.strerror}")
    end = piece.offset + len(piece.data)
    return LogWindow(
        source=source.name,
        offset=piece.offset,
        end=end,
        size=size,
        text=redact(piece.data.decode(errors=_SUBSTITUTE)),
        times=tuple(arrivals(source.times, piece.offset, end)),
        skipped=sum(h.end - h.start for h in source.holes if asked <= h.start < piece.offset),
        file=inode,
        dialect=manner.dialect.names if source.merged else (),
        pids=dict(manner.pids),
    )


def unreadable(name: str, trouble: str) -> LogWindow:
    """Return the window of a source that cannot be read."""
    return LogWindow(source=name, offset=0, end=0, size=0, text="", trouble=trouble)


def _piece(file: LogFile, source: Source, at: At, limit: int, size: int) -> tuple[Window, int]:
    """Return the window, and where it was meant to begin."""
    if at is None:
        piece = tail(file, limit, size)
        return piece, piece.offset
    if isinstance(at, Moment):
        found = offset_at(source.times, at.t)
        at = max((size if found is None else found) - 1, 0)
    return window(file, at, limit, size, source.holes), at


def read_records(source: Source, manner: Manner, offsets: Iterable[int]) -> Iterator[LogRecord]:
    """Yield the records of the lines at ascending offsets. Raises what `open_log` raises."""
    wanted = list(offsets)
    with contextlib.closing(open_log(source.path)) as file:
        pairs = Arrivals(arrivals(source.times, wanted[0], wanted[-1] + 1))
        reader = RecordReader(source.name, pairs, manner.dialect, manner.pids)
        picker = Picker(file, file.size(), reader, manner.dialect)
        for record, _ in picker.pick(wanted):
            yield _redacted(record)


def _redacted(record: Record) -> LogRecord:
    return LogRecord(
        source=record.source,
        offset=record.offset,
        part=record.part,
        t=record.t,
        rank=record.rank,
        level=record.level,
        prefix=redact(record.prefix),
        text=redact(record.text),
        pid=record.pid,
    )


def _substitute(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\x1a" * (error.end - error.start), error.end


codecs.register_error(_SUBSTITUTE, _substitute)
