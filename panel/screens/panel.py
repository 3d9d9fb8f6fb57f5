"""The Textual application: one stored view, one reader of events, screens on top."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import ClassVar

from textual import events, work
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.command import CommandPalette
from textual.message import Message
from textual.screen import ModalScreen, Screen

from panel.client import Client, Lost
from panel.domain.snapshot import Snapshot
from panel.screens.ask import Ask
from panel.screens.base import PanelScreen
from panel.screens.help import HelpScreen
from panel.screens.keys import bindings_of, key
from panel.screens.node import NodeScreen
from panel.screens.theme import QUIET
from panel.screens.typist import Typist
from panel.screens.view import Desk, View
from panel.talk import EngineClient
from panel.widgets.glyphs import ASCII, UNICODE


class News(Message):
    """The newest word of the supervisor; an older one that still waits is passed over."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view

    def can_replace(self, message: Message) -> bool:
        """Only the newest matters."""
        return isinstance(message, News)


class Panel(App[None]):
    """The panel of one node. Leaving it leaves the engine alone."""

    TITLE = "moepanel"
    CSS_PATH = "panel.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("question_mark", "help", "more", "The keys of this screen", "help", "?"),
        key("f1", "help", "more", "The same, also while typing", "help_typing", "F1"),
        key("ctrl+p", "command_palette", "commands", "All commands, by name", "palette"),
        key("q", "leave", "leave", "Leave the panel; the engine keeps running", "leave"),
    ]

    def __init__(
        self,
        client: Client,
        *,
        ascii_signs: bool = False,
        engine: type[EngineClient] = EngineClient,
        clock: Callable[[], float] = time.time,
        paints: int = 10,
    ) -> None:
        """`paints`: how often a second news is painted at most."""
        super().__init__()
        self._paint_s = 1 / paints
        self._painted = 0.0
        self._due = False
        self._typist = Typist(self, super().on_event, self._holds)
        self.desk = Desk(client, engine, ASCII if ascii_signs else UNICODE, clock)
        self.animation_level = "none"
        self.set_class(ascii_signs, "-ascii")
        self.register_theme(QUIET)
        if "TEXTUAL_THEME" not in os.environ:
            self.theme = QUIET.name

    def on_mount(self) -> None:
        """Open the node screen and listen."""
        self.push_screen(NodeScreen(self.desk))
        self.run_worker(self._typist.run(), group="keys")
        self._listen()

    async def on_event(self, event: events.Event) -> None:
        """Leave keys to the typist; one that was handed over comes back unless somebody took it."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            self.clear_notifications()  # What was told has been read.
            self._typist.take(event)
        else:
            await super().on_event(event)

    def _holds(self, key: str) -> bool:
        return isinstance(self.screen, PanelScreen) and self.screen.holds(key)

    async def on_unmount(self) -> None:
        """Close the connections."""
        await self.desk.client.close()

    @work(group="events")
    async def _listen(self) -> None:
        known: Snapshot | None = None
        since: float | None = None
        async for word in self.desk.client.events():
            if isinstance(word, Lost):
                since = self.desk.clock() if since is None else since
                self.post_message(News(View(known, word.reason, since)))
            else:
                known, since = word, None
                self.post_message(News(View(word)))

    def on_news(self, news: News) -> None:
        """Store the view; it is painted at once, or with what else comes by the next turn."""
        self.desk.view = news.view
        wait = self._painted + self._paint_s - time.monotonic()
        if wait <= 0:
            self._paint()
        elif not self._due:
            self._due = True
            self.set_timer(wait, self._paint)

    def _paint(self) -> None:
        """Paint the screens that can be seen."""
        self._due, self._painted = False, time.monotonic()
        for screen in reversed(self.screen_stack):
            if isinstance(screen, PanelScreen):
                screen.refresh_view()
            elif isinstance(screen, Ask):
                screen.look_again()
            if not isinstance(screen, ModalScreen):
                break

    def action_help(self) -> None:
        """Show the keys of the screen."""
        if isinstance(self.screen, PanelScreen) and not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.desk, self.screen))

    def action_command_palette(self) -> None:
        """Offer all commands by name."""
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandPalette(placeholder="search for a command"))

    def action_help_quit(self) -> None:
        """Say on ctrl+c how the panel is left: no reflex should do it."""
        live = "; the engine keeps running" if self.desk.view.live else ""
        self.notify(f"q leaves{live}", markup=False)

    def action_leave(self) -> None:
        """Leave."""
        self.exit()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Offer every key of the screen by its name."""
        for owner in (screen, self):
            for binding in bindings_of(owner):
                if ".rank" in str(binding.id) or binding.id == "palette":
                    continue

                async def run(action: str = binding.action, owner: object = owner) -> None:
                    await self.run_action(action, screen if owner is screen else self)

                yield SystemCommand(binding.description, binding.tooltip, run)
