"""The chat screen: talk to the model, see how fast it answers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import aclosing
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widgets import Input
from textual.worker import Worker

from panel.domain.errors import PanelError
from panel.domain.states import LaunchState
from panel.screens.base import PanelScreen
from panel.screens.keys import key
from panel.screens.view import Desk, View
from panel.talk import Turn
from panel.widgets.field import Field
from panel.widgets.rows import Rows
from panel.widgets.spans import BLANK, Row, Span, Tone, wrap

_MOST_TOKENS = 512
_PAINT_S = 0.1


class ChatScreen(PanelScreen):
    """One conversation; it is forgotten when the screen is left."""

    NAME = "talk"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("escape", "back", "stop, back", "Stop the answer, else back", "chat.back", "Esc"),
        key("enter", "send", "send", "Send the line", "chat.send", "Enter"),
        key("ctrl+l", "clear", "clear", "Forget the conversation", "chat.clear", "ctrl+l"),
        key("pageup", "scroll(-1)", "up", "Earlier in the conversation", "chat.up", "PgUp"),
        key("pagedown", "scroll(1)", "down", "Later in the conversation", "chat.down", "PgDn"),
    ]

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.turns: list[Turn] = []
        self._speed: Row = ()
        self._answer: Worker[None] | None = None
        self._due = False

    def compose_body(self) -> ComposeResult:
        """Yield the conversation and the line to type in."""
        with VerticalScroll(can_focus=False):
            yield Rows(id="talk")
        yield Field("say something")

    def on_mount(self) -> None:
        """Type at once."""
        self.query_one(Input).focus()

    def keys(self, view: View) -> Iterable[str]:
        """Offer what works while typing."""
        return "chat.send", "chat.back", "chat.clear", "chat.up", "help_typing", "palette"

    def show(self, view: View) -> None:
        """Paint the header; the conversation is painted as it grows."""
        launch = view.launch
        title: Row = (Span("no engine", Tone.DIM),)
        if launch:
            title = (
                self.desk.glyphs.launch(launch.state),
                Span(f" #{launch.id} {launch.request.profile} "),
                Span(f"{launch.state.value}  ", Tone.DIM),
            )
        metrics = launch.metrics if launch and view.live else None
        acceptance = metrics.acceptance if metrics else None
        accept = (Span("  accept ", Tone.DIM), Span(f"{acceptance:.1f} ")) if acceptance else ()
        self.titled(title, (*self._speed, *accept))
        self._paint()

    def _paint(self) -> None:
        width = max(self.size.width - 4, 20)
        rows: list[Row] = [*self._tiny()]
        for turn in self.turns:
            mine = turn.role == "user"
            rows.append((Span(" you" if mine else " model", Tone.KEY if mine else Tone.GOOD),))
            for paragraph in turn.content.split("\n"):
                rows += [(Span(f"   {line}"),) for line in wrap(paragraph, width)] or [BLANK]
            rows.append(BLANK)
        talk = self.query_one(VerticalScroll)
        at_end = talk.is_vertical_scroll_end
        self.query_one("#talk", Rows).show(rows if self.turns else [*self._empty(), *rows])
        if at_end:
            talk.scroll_end(animate=False)

    def _tiny(self) -> list[Row]:
        """Return what to expect of the model that ships with the panel; nothing of others."""
        launch = self.desk.view.launch
        serves = launch is not None and launch.state is LaunchState.SERVING
        if launch is None or not serves or launch.flags.get("model-path") != "moe-tiny":
            return []
        told = "moe-tiny is a tiny demo model: it speaks English and knows nothing"
        lines = wrap(told, max(self.size.width - 4, 20))
        return [BLANK, *((Span(f"   {line}", Tone.DIM),) for line in lines), BLANK]

    def _empty(self) -> list[Row]:
        launch = self.desk.view.launch
        if launch and launch.state is LaunchState.SERVING:
            return [BLANK, (Span("   type a line, then Enter sends it", Tone.DIM),)]
        if launch and launch.state is LaunchState.LAUNCHING:
            return [
                BLANK,
                (Span("   the engine is launching; it answers once it serves", Tone.BUSY),),
            ]
        return [
            BLANK,
            (
                Span("   no engine is serving: ", Tone.WARN),
                Span("Esc", Tone.KEY),
                Span(", then ", Tone.DIM),
                Span("r", Tone.KEY),
                Span(" launches one", Tone.DIM),
            ),
        ]

    @property
    def answering(self) -> bool:
        """Whether an answer is being written."""
        return self._answer is not None and not self._answer.is_finished

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Send the line."""
        event.stop()
        self.action_send()

    def action_send(self) -> None:
        """Send what was typed."""
        field = self.query_one(Input)
        launch = self.desk.view.launch
        if not field.value.strip() or self.answering:
            return
        if launch is None or launch.state is not LaunchState.SERVING:
            self.tell(PanelError("no engine is serving", "Esc, then r launches one"))
            return
        self.turns.append(Turn("user", field.value.strip()))
        field.value = ""
        self._answer = self._stream(launch.url)

    @work(group="answer")
    async def _stream(self, url: str) -> None:
        asked, self._speed = tuple(self.turns), ()
        self.turns.append(Turn("assistant", ""))
        engine = self.desk.engine(url)
        start = time.monotonic()
        first: float | None = None
        text, tokens = "", 0
        self.refresh_view()
        try:
            async with aclosing(engine.chat(asked, _MOST_TOKENS)) as pieces:
                async for piece in pieces:
                    now = time.monotonic()
                    text += piece.text
                    first = first or (now if piece.text else None)
                    tokens = piece.tokens or tokens + bool(piece.text)
                    self.turns[-1] = Turn("assistant", text)
                    self._speed = _speed(start, first, now, tokens)
                    self._paint_soon()
        except PanelError as error:
            self.tell(error)
        finally:
            if not text and self.turns:
                self.turns.pop()
            await engine.close()
        self.refresh_view()

    def _paint_soon(self) -> None:
        """Paint once for all pieces that come within a tenth of a second."""

        def paint() -> None:
            self._due = False
            self.refresh_view()

        if not self._due:
            self._due = True
            self.set_timer(_PAINT_S, paint)

    def action_clear(self) -> None:
        """Forget the conversation."""
        if self._answer:
            self._answer.cancel()
        self.turns, self._speed = [], ()
        self.refresh_view()

    def action_scroll(self, direction: int) -> None:
        """Look at other parts of the conversation."""
        talk = self.query_one(VerticalScroll)
        talk.scroll_relative(y=direction * max(talk.size.height - 1, 1), animate=False)

    def action_back(self) -> None:
        """Stop the answer, else leave."""
        if self._answer and self.answering:
            self._answer.cancel()
            self.refresh_view()
        else:
            super().action_back()


def _speed(start: float, first: float | None, now: float, tokens: int) -> Row:
    if first is None:
        return ()
    row: Row = (Span("ttft ", Tone.DIM), Span(f"{(first - start) * 1000:.0f}ms"))
    if now > first and tokens > 1:
        rate = (tokens - 1) / (now - first)
        row = (Span(f"{rate:.0f}", Tone.BRIGHT), Span(" tok/s  ", Tone.DIM), *row)
    return row
