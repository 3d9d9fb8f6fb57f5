"""The signs of the panel, for terminals with block characters and for those without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from panel.domain.states import ASCII_SIGNS, SIGNS, LaunchState, ProcessState
from panel.widgets.spans import Row, Span, Tone, cells

_AS_PROCESS: dict[LaunchState, ProcessState] = {
    LaunchState.LAUNCHING: ProcessState.BUSY,
    LaunchState.SERVING: ProcessState.SERVING,
    LaunchState.STOPPING: ProcessState.BUSY,
    LaunchState.FAILING: ProcessState.FAILED,
    LaunchState.STOPPED: ProcessState.STOPPED,
    LaunchState.CRASHED: ProcessState.FAILED,
    LaunchState.REFUSED: ProcessState.FAILED,
    LaunchState.LOST: ProcessState.STALE,
}
_TONES: dict[ProcessState, Tone] = {
    ProcessState.BUSY: Tone.BUSY,
    ProcessState.SERVING: Tone.GOOD,
    ProcessState.STALE: Tone.WARN,
    ProcessState.STOPPED: Tone.DIM,
    ProcessState.FAILED: Tone.BAD,
}


_PLAIN = str.maketrans({"≤": "<=", "↑": "up", "↓": "down", "←": "left", "→": "right"})
"""What words of ours hold beyond ASCII."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of signs."""

    states: dict[ProcessState, str]
    blocks: str
    """From the least value to the greatest."""
    line: str
    ok: str
    pointer: str
    arrow: str
    more: str
    on: str
    off: str
    times: str
    gap: str
    bar: str
    braille: bool
    """Whether charts may use its characters."""

    def plain(self, text: str) -> str:
        """Return words of ours, such as chips and names of keys, in signs of this set."""
        return text if self.braille else text.translate(_PLAIN)

    def process(self, state: ProcessState) -> Span:
        """Return the sign of a process."""
        return Span(self.states[state], _TONES[state])

    def launch(self, state: LaunchState) -> Span:
        """Return the sign of a launch."""
        return self.process(_AS_PROCESS[state])

    @property
    def bad(self) -> Span:
        """The sign of failure."""
        return self.process(ProcessState.FAILED)

    def bars(self, values: Sequence[float | None], width: int, top: float | None = None) -> str:
        """Return the newest `width` values as one block each, nothing for None.

        At full height stands `top`, the greatest of them without it.
        """
        shown = values[-width:]
        full = max((value for value in shown if value is not None), default=0.0)
        full = full if top is None else top
        return "".join(self._bar(value, full) for value in shown).rjust(width)

    def _bar(self, value: float | None, full: float) -> str:
        if value is None:
            return " "
        share = min(value / full, 1.0) if full > 0 else 0.0
        return self.blocks[round(share * (len(self.blocks) - 1))]

    def rule(self, title: Row, width: int, end: Row = ()) -> Row:
        """Return a line across the screen with a title and, at its right, a remark."""
        left = (Span(self.line * 2 + " ", Tone.DIM), *title, Span(" ", Tone.DIM))
        tail = (Span(" "), *end, Span(" " + self.line * 2, Tone.DIM)) if end else ()
        gap = max(width - cells(left) - cells(tail), 0)
        return (*left, Span(self.line * gap, Tone.DIM), *tail)


UNICODE = Glyphs(
    states=SIGNS, blocks="▁▂▃▄▅▆▇█", line="─", ok="✔", pointer="▸", arrow="→", more="…",
    on="●", off="○", times="×", gap="·", bar="┃", braille=True,
)  # fmt: skip
ASCII = Glyphs(
    states=ASCII_SIGNS, blocks="_.:-=+*#", line="-", ok="ok", pointer=">", arrow="->", more="~",
    on="*", off=".", times="x", gap=".", bar="|", braille=False,
)  # fmt: skip
