"""Progress of a launch on standard error: one line that changes, or a line a phase."""

from __future__ import annotations

import shutil
import sys
from typing import TextIO

from panel.commands._words import fit, phase
from panel.domain.snapshot import LaunchView
from panel.domain.states import LaunchState
from panel.widgets.words import span_of


class Progress:
    """Shows a launch while a command waits for it."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._tty = self._stream.isatty()
        self.stand = ""
        """The phase or state that was shown last."""

    def show(self, launch: LaunchView) -> None:
        """Show where the launch stands."""
        launching = launch.state is LaunchState.LAUNCHING
        stand = launch.phase if launching else launch.state
        if self._tty:
            self._write("\r\x1b[K" + fit(_line(launch), shutil.get_terminal_size().columns - 1))
        elif stand != self.stand:
            self._write(f"#{launch.id} {stand}{_since(launch, ' ')}\n")
        self.stand = stand

    def close(self) -> None:
        """Clear the line, so that the result stands alone."""
        if self._tty and self.stand:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _since(launch: LaunchView, gap: str) -> str:
    """Return the seconds since launch where they say how long something takes."""
    begins = launch.state in (LaunchState.LAUNCHING, LaunchState.SERVING)
    return f"{gap}{span_of(launch.t)}" if begins else ""


def _line(launch: LaunchView) -> str:
    if launch.state is not LaunchState.LAUNCHING:
        return f"#{launch.id} {launch.state}{_since(launch, '  ')}"
    behind = [rank for rank in launch.ranks if rank.phase == launch.phase]
    words = phase(min(behind, key=lambda rank: rank.done)) if behind else launch.phase
    usual = f" of about {span_of(launch.usual_ready_s)}" if launch.usual_ready_s else ""
    return f"#{launch.id} {words}  {span_of(launch.t)}{usual}"
