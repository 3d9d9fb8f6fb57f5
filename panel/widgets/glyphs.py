"""The signs of the panel, for terminals with block characters and for those without."""

from __future__ import annotations

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

    def bars(self, values: tuple[float, ...], width: int) -> str:
        """Return the newest `width` values as one block each, the greatest at full height."""
        shown = values[-width:]
        top = max(shown, default=0.0)
        last = len(self.blocks) - 1
        heights = (round(value / top * last) if top > 0 else 0 for value in shown)
        return "".join(self.blocks[height] for height in heights).rjust(width)

    def rule(self, title: Row, width: int, end: Row = ()) -> Row:
        """Return a line across the screen with a title and, at its right, a remark."""
        left = (Span(self.line * 2 + " ", Tone.DIM), *title, Span(" ", Tone.DIM))
        tail = (Span(" "), *end, Span(" " + self.line * 2, Tone.DIM)) if end else ()
        gap = max(width - cells(left) - cells(tail), 0)
        return (*left, Span(self.line * gap, Tone.DIM), *tail)


UNICODE = Glyphs(
    states=SIGNS, blocks="▁▂▃▄▅▆▇█", line="─", ok="✔", pointer="▸", arrow="→", more="…",
    on="●", off="○",
)  # fmt: skip
ASCII = Glyphs(
    states=ASCII_SIGNS, blocks="_.:-=+*#", line="-", ok="ok", pointer=">", arrow="->", more="~",
    on="*", off=".",
)  # fmt: skip
