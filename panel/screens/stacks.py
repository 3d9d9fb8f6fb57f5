"""The stacks screen: where every rank stands now, equal stacks together, the odd one first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import work
from textual.binding import BindingType

from panel.domain.errors import PanelError
from panel.domain.snapshot import LaunchView
from panel.domain.stacks import Stacks
from panel.screens.keys import key
from panel.screens.text import TextScreen
from panel.screens.view import Desk, View
from panel.widgets.spans import BLANK, Row, Span, Tone, wrap
from panel.widgets.stack_rows import stack_rows


class StacksScreen(TextScreen, inherit_bindings=False):
    """Takes them when it is opened, and again on demand."""

    NAME = "stacks"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("s", "take(False)", "again", "Take the stacks again", "stacks.take"),
        key(
            "n", "take(True)", "native", "With frames of C and C++; pauses longer", "stacks.native"
        ),
        key("enter", "unfold", "frames", "All frames, or the innermost", "stacks.unfold", "Enter"),
        key("a", "threads", "all threads", "Every thread of every process", "stacks.threads"),
        *TextScreen.BINDINGS,
    ]

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.taken: Stacks | None = None
        self._launch: LaunchView | None = None
        """The launch whose stacks are shown: a newer one may run meanwhile."""
        self._told = "taking them"
        self._unfolded = False
        self._threads = False

    def on_mount(self) -> None:
        """Take them."""
        self.action_take(False)

    def keys(self, view: View) -> Iterable[str]:
        """Offer other looks at them."""
        more = ("stacks.unfold", "stacks.threads") if self.taken else ()
        take = ("stacks.take", "stacks.native") if view.live else ()
        return *take, *more, "back", "help"

    def show(self, view: View) -> None:
        """Paint the stacks, and where they are kept."""
        taken = self.taken
        end: Row = ()
        if taken is not None:
            kept = f"kept: {taken.file} " if taken.file else "not kept: the disk is full? "
            end = (Span(kept, Tone.DIM if taken.file else Tone.WARN),)
        launch = self._launch
        name = f"#{launch.id} {launch.request.profile}/{launch.engine}" if launch else ""
        native = "  native" if taken and taken.native else ""
        self.titled((Span(name + native, Tone.DIM),), end)
        super().show(view)

    def rows(self, view: View) -> Iterable[Row]:
        """Return the groups, or why there are none."""
        width = self.text_width
        rows: list[Row] = []
        if self._told:
            rows += [(Span(f"   {line}", Tone.WARN),) for line in wrap(self._told, width - 4)]
        if self.taken is None:
            return [BLANK, *rows]
        found = stack_rows(
            self.taken,
            width,
            self.desk.glyphs,
            unfolded=self._unfolded,
            threads=self._threads,
        )
        return [*rows, *found]

    def action_take(self, native: bool) -> None:
        """Take the stacks of all processes."""
        launch = self.desk.view.launch
        if launch is None:
            self._told = "nothing was launched yet: Esc, then r launches"
        elif not launch.state.live:
            self._told = f"no launch runs; stacks of the last one are in {launch.folder}/stacks"
        elif self.desk.view.hindrance:
            self._told = self.desk.view.hindrance
        else:
            self._told = "taking them, with native frames" if native else "taking them"
            self._take(launch, native)
        self.refresh_view()

    @work(group="stacks", exclusive=True)
    async def _take(self, launch: LaunchView, native: bool) -> None:
        try:
            found = await self.desk.client.stacks(launch.id, native=native)
            self.taken, self._launch, self._told = found, launch, ""
        except PanelError as error:
            self._told = str(error)
        self.refresh_view()

    def action_unfold(self) -> None:
        """Show all frames, or the innermost."""
        self._unfolded = not self._unfolded
        self.refresh_view()

    def action_threads(self) -> None:
        """Show every thread, or the places where the processes stand."""
        self._threads = not self._threads
        self.refresh_view()
