"""What every screen is: one header, one body, one key line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from typing import ClassVar

from textual import events
from textual._styles_cache import StylesCache
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen

from panel.domain.errors import PanelError
from panel.domain.snapshot import LaunchView
from panel.logs.decode import clean
from panel.screens.ask import Ask
from panel.screens.keys import bindings_of
from panel.screens.view import Desk, View
from panel.widgets.plain_bars import PlainBars
from panel.widgets.rows import Rows
from panel.widgets.spans import Row, Span, Tone, cells, clipped, spread

_KEPT = ("back", "chat.back", "help", "help_typing", "leave")
"""Keys that the line keeps on a screen that has no room for all."""


class PanelScreen(Screen[None]):
    """A screen of the panel. Subclasses paint in `show`, which is called for each new view."""

    NAME: ClassVar[str]
    NOTES: ClassVar[tuple[str, ...]] = ()
    """What the help says beyond keys."""
    """In the help and in the header."""
    BINDINGS: ClassVar[list[BindingType]] = []
    AUTO_FOCUS = ""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self.desk = desk

    def compose_body(self) -> ComposeResult:
        """Yield what stands between header and key line."""
        yield from ()

    def show(self, view: View) -> None:
        """Paint the body and the header for this view."""
        raise NotImplementedError

    def keys(self, view: View) -> Iterable[str | tuple[str, str]]:
        """Return ids of bindings for the key line; with another word where theirs misleads."""
        raise NotImplementedError

    def holds(self, key: str) -> bool:
        """Whether this key has to wait for something that was asked for; Escape never does."""
        return False

    def compose(self) -> ComposeResult:
        """Lay out header, body and key line."""
        yield Rows([()], id="header")
        yield from self.compose_body()
        yield Rows([()], id="keys")

    def on_mount(self) -> None:
        """Draw scroll bars with the signs of the panel."""
        if not self.desk.glyphs.braille:
            for scroll in self.query(VerticalScroll):
                scroll.vertical_scrollbar.renderer = PlainBars  # type: ignore[misc]

    def on_unmount(self) -> None:
        """Let go of what was painted: Textual would keep the lines of the last 1024 widgets."""
        StylesCache.get_inner_outer.cache_clear()

    @property
    def stands(self) -> bool:
        """Whether all of it is there, and is not about to go."""
        return self.is_mounted and self.display

    def _on_prune(self) -> None:
        """End the workers before the widgets that they paint in: Textual does so behind them."""
        self.workers.cancel_node(self)

    def refresh_view(self) -> None:
        """Paint everything from the view that the desk holds."""
        if not self.stands or not self.size.width:
            return
        self.set_class(self.desk.view.lost is not None, "-lost")
        self.show(self.desk.view)
        self.query_one("#keys", Rows).show([self.key_line()])

    def header(self, *rows: Row) -> None:
        """Paint the header."""
        self.query_one("#header", Rows).show(rows)

    def named(self, launch: LaunchView) -> Row:
        """Return a launch's number, profile, engine and state, for a header."""
        sign = self.desk.glyphs.launch(launch.state)
        name = Span(f"#{launch.id} {launch.request.profile}/{launch.engine}  ", Tone.DIM)
        return name, sign, Span(f" {launch.state.value}", sign.tone)

    def titled(self, title: Row, end: Row = ()) -> None:
        """Paint a header of the screen's name and a title."""
        name = (Span(f" {self.NAME}  ", Tone.BRIGHT), *title)
        hindrance = self.desk.view.hindrance
        told: Row = (Span(f"! {hindrance} ", Tone.WARN),) if hindrance else end
        width, more = self.size.width, self.desk.glyphs.more
        room = max(width - cells(told) - 1, cells(name[:1])) if told else width
        self.header(clipped(spread(clipped(name, room, more), told, width), width, more))

    def on_screen_resume(self) -> None:
        """Catch up with what happened while another screen was shown, before anything is painted.

        Textual lays the screen out behind this handler, and would paint it as it then is.
        """
        unpainted = ExitStack()
        unpainted.enter_context(self.app.batch_update())

        def catch_up() -> None:
            with unpainted:
                self.refresh_view()

        self.call_next(catch_up)

    def on_resize(self, event: events.Resize) -> None:
        """Paint for the new size."""
        self.call_next(self.refresh_view)

    def action_back(self) -> None:
        """Leave this screen."""
        self.app.pop_screen()

    def act(self, request: Callable[[], Awaitable[object]]) -> None:
        """Send a request; a failure is told, never raised."""

        async def send() -> None:
            try:
                await request()
            except PanelError as error:
                self.tell(error)

        if self.desk.view.hindrance:
            self.tell(PanelError(self.desk.view.hindrance))
        else:
            self.run_worker(send(), group="act")

    def ask(self, question: str, key: str, request: Callable[[], Awaitable[object]]) -> None:
        """Send a request after one more press of its key, unless the launch changes meanwhile."""

        def answered(yes: bool | None) -> None:
            if yes:
                self.act(request)

        if self.desk.view.hindrance:
            self.tell(PanelError(self.desk.view.hindrance))
        else:
            self.app.push_screen(Ask(question, key, self.unchanged()), answered)

    def unchanged(self) -> Callable[[], bool]:
        """Return what says whether the launch and its state are still those of now."""
        now = self.desk.view.subject
        return lambda: self.desk.view.subject == now

    def tell(self, error: PanelError) -> None:
        """Show an error for some seconds."""
        self.notify(clean(str(error).encode()), severity="error", timeout=8, markup=False)

    def key_line(self) -> Row:
        """Return the keys that act now."""
        known = {binding.id: binding for binding in bindings_of(self, self.app)}
        keys: list[tuple[str, Row]] = []
        for offered in self.keys(self.desk.view):
            name, word = offered if isinstance(offered, tuple) else (offered, "")
            binding = known[name]
            shown = self.desk.glyphs.plain(binding.key_display or binding.key)
            does = word or binding.description
            does = "" if does == shown else f" {does}"
            keys.append((name, (Span(shown, Tone.KEY), Span(f"{does}  ", Tone.DIM))))
        while 1 + sum(cells(row) for _, row in keys) - 2 > self.size.width:
            spare = [at for at, (name, _) in enumerate(keys) if name not in _KEPT]
            if not spare:
                break
            del keys[spare[-1]]
        return (Span(" "), *(span for _, row in keys for span in row))
