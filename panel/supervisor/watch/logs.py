"""Sizes and last lines of the logs of a launch."""

from __future__ import annotations

from collections.abc import Iterable

from panel.domain.redact import redact
from panel.logs.decode import clean
from panel.logs.files import open_regular
from panel.logs.records import builtin
from panel.supervisor.evidence import Folder

_TAIL_BYTES = 4096
_LONGEST = 200


class LogSampler:
    """Looks at the logs; reads only those that grew."""

    def __init__(self, folder: Folder, sources: Iterable[str]) -> None:
        self._paths = {source: folder.log(source) for source in sources}
        self.sizes: dict[str, int] = {}
        self.last_lines: dict[str, str] = {}

    def sample(self) -> None:
        """Bring sizes and last lines up to date."""
        for source, path in self._paths.items():
            try:
                size = path.stat().st_size
                if size == self.sizes.get(source):
                    continue
                with open_regular(path) as file:
                    file.seek(max(0, size - _TAIL_BYTES))
                    tail = file.read()
            except OSError:
                # Not there yet, or no more.
                self.sizes.pop(source, None)
                continue
            self.sizes[source] = size
            self.last_lines[source] = last_line(tail) or self.last_lines.get(source, "")


def last_line(tail: bytes) -> str:
    """Return the last complete line that is not empty, for a narrow column: no prefix, no escapes,
    no secrets, at most 200 characters."""
    whole = tail[: tail.rfind(b"\n") + 1]
    for raw in reversed(whole.split(b"\n")):
        line = clean(raw)
        prefix = builtin(line)
        text = (line[prefix.end :] if prefix else line).strip()
        if text:
            return redact(text)[:_LONGEST]
    return ""
