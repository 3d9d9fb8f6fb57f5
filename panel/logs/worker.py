"""`python -c …`: the process that searches for `panel.logs.search`, so that it can be killed.

Reads one JSON line with the query and the logs, then `log floor start end` lines; answers each with
one frame. Starts with the standard library and `panel.logs` only.
"""

from __future__ import annotations

import json
import signal
import struct
import sys
from pathlib import Path
from typing import Any

from panel.domain.errors import PanelError
from panel.logs.files import LogFile, open_log
from panel.logs.grammars import named
from panel.logs.query import Query
from panel.logs.scan import Scanner

FRAME = struct.Struct("<?Q")
"""Whether it went well, then how many bytes follow: offsets as 64-bit numbers, or a message."""
_LEAD = 1 << 16
_OVER = 1 << 16
_LONGEST_OVER = 1 << 26
"""Of a line longer than that, only the beginning is searched."""


class _Log:
    def __init__(self, query: Query, said: dict[str, Any]) -> None:
        self._file = open_log(Path(said["path"]))
        ranks = {int(pid): rank for pid, rank in said["ranks"].items()}
        self._scanner = Scanner(query, named(said["dialect"]), said["rank"], ranks)
        self._lead = _LEAD if query.by_record else 1

    def scan(self, floor: int, start: int, end: int) -> bytes:
        """Return the offsets of the wanted lines that begin from `start` to before `end`.

        At `floor` a line begins, and before it nothing is to be read.
        """
        base = max(start - self._lead, floor)
        data = _through_line_end(self._file, self._file.read(base, end - base), base)
        lead = data.find(b"\n", start - base - 1) + 1 if start > floor else 0
        if (start > floor and not lead) or base + lead >= end:
            return b""  # A line from before reaches over the whole piece.
        # The records before the piece must be whole; where only the piece counts, a copy is spared.
        cut = data.find(b"\n") + 1 if base > floor and self._lead > 1 else 0
        return self._scanner.scan(data[cut:], base + cut, lead - cut).tobytes()


def _through_line_end(file: LogFile, data: bytes, base: int) -> bytes:
    """Return `data`, which begins at `base`, with the rest of its last line."""
    count = _OVER
    while data and not data.endswith(b"\n") and count < _LONGEST_OVER:
        more = file.read(base + len(data), count)
        newline = more.find(b"\n")
        if newline >= 0 or not more:
            return data + more[: newline + 1]
        data += more
        count *= 4
    return data


def main() -> None:
    """Serve until the end of standard input."""
    order = json.loads(sys.stdin.buffer.readline())
    query = Query.from_json(order["query"])
    logs: dict[int, _Log] = {}
    for line in sys.stdin.buffer:
        number, *span = map(int, line.split())
        try:
            if number not in logs:
                logs[number] = _Log(query, order["logs"][number])
            # Its default action ends the process, also in the middle of a regular expression.
            signal.setitimer(signal.ITIMER_VIRTUAL, order["patience_s"])
            answer, fine = logs[number].scan(*span), True
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        except (PanelError, OSError) as error:
            answer, fine = str(error).encode(), False
        sys.stdout.buffer.write(FRAME.pack(fine, len(answer)) + answer)
        sys.stdout.buffer.flush()
