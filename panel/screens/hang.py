"""The hang screen: the steps of looking at a gang that stands still, one key each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, get_args

from textual import work
from textual.binding import BindingType

from panel.domain.errors import PanelError
from panel.domain.hang import HangView, Step
from panel.domain.snapshot import LaunchView
from panel.screens.ask import Ask
from panel.screens.keys import key
from panel.screens.stacks import StacksScreen
from panel.screens.text import TextScreen
from panel.screens.view import Desk, View
from panel.widgets.hang_rows import hang_rows, next_step
from panel.widgets.spans import BLANK, Row, Span, Tone, wrap

_EVERY_S = 1.0
"""The supervisor does the first steps by itself: so often they are asked for."""
_SENTENCES: dict[Step, str] = {
    "look": "Compare beats, collectives and GPUs of all ranks",
    "ras": "Ask NCCL twice which rank has entered what; takes some 10 s",
    "stacks": "Take the stacks of all ranks and name the odd one",
    "flight": "Have torch's flight recorders dumped and compared",
    "core": "Take a core of the odd rank's CUDA kernels; asks first",
}
_ASKED: dict[Step, str] = {"core": "freeze the odd rank for minutes and write gigabytes?"}


def _step_keys() -> list[BindingType]:
    return [
        key(str(number), f"step({step!r})", step, _SENTENCES[step], f"hang.{step}")
        for number, step in enumerate(get_args(Step))
    ]


class HangScreen(TextScreen, inherit_bindings=False):
    """Any step at any time: one that is skipped stays open."""

    NAME = "hang"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "next", "next", "The lowest step that is left", "hang.next", "Enter"),
        *_step_keys(),
        key("s", "open_stacks", "see stacks", "Stacks of all ranks in full", "hang.open_stacks"),
        *TextScreen.BINDINGS,
    ]

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.hang: HangView | None = None
        self._asked: tuple[str, float] = ("", 0.0)
        self._busy: Step | None = None
        self._trouble = ""

    def keys(self, view: View) -> Iterable[str]:
        """Offer the steps while a launch runs."""
        if not view.live:
            return "back", "help"
        steps = (f"hang.{step}" for step in get_args(Step))
        return "hang.next", *steps, "back", "help"

    def show(self, view: View) -> None:
        """Paint the ladder; what the supervisor did meanwhile is asked for."""
        launch = view.launch
        title: Row = ()
        if launch is not None:
            title = self.named(launch)
            if view.live and not view.hindrance and self._due(launch):
                self._ask(launch)
        self.titled(title)
        super().show(view)

    def rows(self, view: View) -> Iterable[Row]:
        """Return the ladder, or why there is none."""
        width = self.text_width
        told = [(Span(f"   {line}", Tone.BAD),) for line in wrap(self._trouble, width - 4)]
        if view.launch is None or not view.live:
            return [BLANK, (Span("   nothing runs that could hang", Tone.DIM),)]
        if self.hang is None or self.hang.launch != view.launch.id:
            return [BLANK, *(told or [(Span("   asking the supervisor", Tone.DIM),)])]
        world = view.launch.world_size
        return [*told, *hang_rows(self.hang, world, self._busy, width, self.desk.glyphs)]

    def _due(self, launch: LaunchView) -> bool:
        uuid, t = self._asked
        return uuid != launch.uuid or launch.t - t >= _EVERY_S

    @work(group="hang", exclusive=True)
    async def _ask(self, launch: LaunchView) -> None:
        self._asked = (launch.uuid, launch.t)
        try:
            self.hang, self._trouble = await self.desk.client.hang(launch.id), ""
        except PanelError as error:
            self._trouble = str(error)
        self.refresh_view()

    @work(group="step")
    async def _do(self, launch: LaunchView, step: Step) -> None:
        self._busy = step
        self.refresh_view()
        try:
            self.hang = await self.desk.client.hang_step(launch.id, step)
        except PanelError as error:
            self.tell(error)
        self._busy = None
        self.refresh_view()

    def action_step(self, step: Step) -> None:
        """Do one step."""
        view = self.desk.view
        if view.launch is None or not view.live or view.hindrance:
            self.tell(PanelError(view.hindrance or "nothing runs that could hang"))
        elif self._busy is not None:
            self.tell(PanelError(f"{self._busy} is under way"))
        elif step in _ASKED and self._possible(step):
            self._ask_first(view.launch, step)
        else:
            self._do(view.launch, step)

    def _possible(self, step: Step) -> bool:
        rungs = self.hang.rungs if self.hang else ()
        return any(rung.step == step and not rung.refused for rung in rungs)

    def _ask_first(self, launch: LaunchView, step: Step) -> None:
        def answered(yes: bool | None) -> None:
            if yes:
                self._do(launch, step)

        number = str(get_args(Step).index(step))
        self.app.push_screen(Ask(f"{_ASKED[step]} ", number, self.unchanged()), answered)

    def action_next(self) -> None:
        """Do the lowest step that is left."""
        step = next_step(self.hang) if self.hang else None
        if step is not None:
            self.action_step(step)
        else:
            self.tell(PanelError("no step is left", "Esc, then x stops the gang"))

    def action_open_stacks(self) -> None:
        """Take the stacks and show them in full."""
        self.app.push_screen(StacksScreen(self.desk))
