"""Last words of a native crash: the dump that faulthandler writes, line by line.

`Fatal Python error: …`, then every thread with its innermost frame first; the thread that crashed
is the one called current, and comes at any place.
"""

from __future__ import annotations

import re

from panel.triage.trace import FOREIGN, FRAME, LogLine

BEGINS = re.compile(r"Fatal Python error: ")
_THREAD = re.compile(r"(?P<current>Current t|T)hread 0x[0-9a-f]+ .*\(most recent call first\):")
_LINES = 4000
"""A hundred threads of thirty frames."""


class FatalDump:
    """Reads the lines behind `Fatal Python error`."""

    def __init__(self) -> None:
        self._left = _LINES
        self._current = False
        self.frames: list[LogLine] = []
        """Of the thread that crashed, the innermost first."""

    def feed(self, line: LogLine) -> bool:
        """Take the next line of the speaker; False where it is none of the dump's."""
        self._left -= 1
        if not self._left:
            return False
        if thread := _THREAD.match(line.text):
            # The current thread comes once: nothing behind it is of use.
            done = bool(self.frames)
            self._current = thread["current"] != "T"
            return not done
        if FRAME.match(line.text):
            if self._current:
                self.frames.append(line)
            return True
        return not line.text.strip() and not self.frames

    @property
    def frame(self) -> LogLine | None:
        """The innermost frame of the project, else the innermost."""
        own = (line for line in self.frames if not FOREIGN.search(line.text))
        return next(own, self.frames[0] if self.frames else None)


def frame_words(line: LogLine) -> str:
    """Return a frame as people say it: `server/faults.py:87 in fire`."""
    match = FRAME.match(line.text)
    if match is None:
        return line.text.strip()
    place = f"{'/'.join(match['file'].split('/')[-2:])}:{match['line']}"
    function = match["function"] or match["native"]
    return f"{place} in {function}" if function else place
