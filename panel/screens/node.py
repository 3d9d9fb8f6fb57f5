"""The node screen: eight ranks, their figures and the end of their logs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType

from panel.domain.errors import PanelError
from panel.domain.flags import Profile
from panel.domain.plan import Plan
from panel.domain.snapshot import LaunchView
from panel.domain.wire import Down, Relaunch, Up
from panel.screens.base import PanelScreen
from panel.screens.chat import ChatScreen
from panel.screens.history import HistoryScreen
from panel.screens.keys import key, rank_keys
from panel.screens.launch import LaunchScreen
from panel.screens.log_feed import LogFeed
from panel.screens.logs import LogsScreen, news_words, picked_words
from panel.screens.triage import TriageScreen
from panel.screens.view import Desk, View
from panel.widgets import node_rows
from panel.widgets.log_view import LogView
from panel.widgets.rows import Rows
from panel.widgets.spans import BLANK, Span, Tone

_TAIL = 16 << 10
_SCREENS: dict[str, type[PanelScreen]] = {
    "logs": LogsScreen,
    "launch": LaunchScreen,
    "chat": ChatScreen,
    "history": HistoryScreen,
}


def _busy(launch: LaunchView) -> str:
    running = launch.metrics.running if launch.metrics else 0
    return f" while {running} requests are running" if running else ""


class NodeScreen(PanelScreen):
    """Where the panel starts."""

    NAME = "node"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("l", "go('logs')", "logs", "Logs of all ranks in one view", "node.logs"),
        key("t", "triage", "triage", "What the last failure was", "node.triage"),
        key("c", "go('launch')", "configure", "Change flags and see the plan", "node.configure"),
        key("k", "go('chat')", "talk", "Talk to the model that is served", "node.talk"),
        key("h", "go('history')", "history", "Earlier launches", "node.history"),
        key("r", "relaunch", "relaunch", "Launch again with the same flags", "node.relaunch"),
        key("x", "stop", "stop", "Stop the engine: TERM, grace, KILL; asks once", "node.stop"),
        key("X", "stop_now", "stop now", "Kill the engine at once; asks once", "node.stop_now"),
        *rank_keys("node"),
    ]

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.feed = LogFeed(desk.client, _TAIL)
        self._plan: Plan | None = None
        self._trouble = ""
        self._planned_for: tuple[Profile, ...] | None = None
        self._blamed_for: str | None = None

    def compose_body(self) -> ComposeResult:
        """Yield the table, the verdict and the end of the logs."""
        yield Rows([BLANK], id="figures")
        yield Rows(id="ranks")
        yield Rows(id="verdict")
        yield Rows([()], id="log-title")
        yield LogView(self.feed.model, id="log")

    def keys(self, view: View) -> Iterable[str | tuple[str, str]]:
        """Offer what makes sense in this state."""
        if view.launch is None:
            launch = ("node.relaunch", "launch")
            return launch, "node.configure", "node.history", "help", "leave"
        if view.live:
            return (
                "node.logs",
                "node.configure",
                "node.relaunch",
                "node.stop",
                "node.talk",
                "node.history",
                "help",
            )
        first = ("node.triage",) if view.launch.verdict else ()
        return (
            *first,
            "node.logs",
            "node.configure",
            "node.relaunch",
            "node.history",
            "help",
            "leave",
        )

    def show(self, view: View) -> None:
        """Paint the node."""
        snapshot, glyphs, width = view.snapshot, self.desk.glyphs, self.size.width
        ranks, verdict = self.query_one("#ranks", Rows), self.query_one("#verdict", Rows)
        log, title = self.query_one(LogView), self.query_one("#log-title", Rows)
        if snapshot is None:
            told = Span(view.hindrance, Tone.WARN if view.lost else Tone.DIM)
            self.header((Span(" moepanel  ", Tone.BRIGHT), told))
            return
        self.header(node_rows.header(snapshot, view.lost, width, glyphs))
        self.query_one("#figures", Rows).show([node_rows.figures(snapshot, width, glyphs)])
        launch = snapshot.launch
        log.display = title.display = launch is not None
        if launch is None:
            self._plan_first(view)
            rows = node_rows.empty(self._plan, snapshot.profiles, self._trouble, width, glyphs)
            ranks.show(rows)
            return
        ranks.show(node_rows.ranks(launch, width, glyphs))
        verdict.show(node_rows.verdict(launch, width, glyphs))
        self._choose_log(launch)
        name = (Span("log ", Tone.BRIGHT), Span(picked_words(self.feed.model.picked), Tone.DIM))
        note = (Span(f"{launch.note}  ", Tone.WARN),) if launch.note else ()
        title.show([glyphs.rule(name, width, (*note, news_words(log.page)))])
        self._pull()

    def _choose_log(self, launch: LaunchView) -> None:
        """Show all logs of a new launch, and that of the process to blame once it failed."""
        if self.feed.turn_to(launch):
            self._pick(frozenset())
        if launch.state.failed and self._blamed_for != launch.uuid:
            self._blamed_for = launch.uuid
            blamed = node_rows.first_failed(launch)
            self._pick(frozenset({blamed.source} if blamed else ()))

    def _pick(self, sources: frozenset[str]) -> None:
        self.feed.model.pick(sources)
        self.query_one(LogView).update()

    @work(group="logs")
    async def _pull(self) -> None:
        launch = self.desk.view.launch
        if launch and await self.feed.pull(launch):
            self.query_one(LogView).update()

    def _plan_first(self, view: View) -> None:
        profiles = view.snapshot.profiles if view.snapshot else ()
        if self._planned_for != profiles and view.lost is None:
            self._planned_for = profiles
            self._ask_plan()

    @work(group="plan", exclusive=True)
    async def _ask_plan(self) -> None:
        try:
            self._plan, self._trouble = await self.desk.client.plan(Up()), ""
        except PanelError as error:
            self._plan, self._trouble = None, str(error)
        self.refresh_view()

    def action_pick(self, rank: int) -> None:
        """Show the log of this rank, or no longer."""
        self._pick(self.feed.model.picked ^ {f"rank-{rank}"})
        self.refresh_view()

    def action_pick_all(self) -> None:
        """Show the logs of all ranks."""
        self._pick(frozenset())
        self.refresh_view()

    def action_go(self, name: str) -> None:
        """Open another screen."""
        self.app.push_screen(_SCREENS[name](self.desk))

    def action_triage(self) -> None:
        """Open what triage concluded, where there is anything."""
        launch = self.desk.view.launch
        if launch and launch.verdict:
            self.app.push_screen(TriageScreen(self.desk))
        else:
            self.tell(PanelError("nothing has failed", "triage opens after a crash"))

    def action_relaunch(self) -> None:
        """Launch again; ask first when that stops an engine."""
        launch = self.desk.view.launch
        if launch and launch.state.live:
            question = f"stop and relaunch #{launch.id}{_busy(launch)}?"
            self.ask(question, "r", lambda: self.desk.client.relaunch(Relaunch()))
        else:
            self.act(lambda: self.desk.client.relaunch(Relaunch()))

    def action_stop(self) -> None:
        """Stop the gang after one question."""
        self._stop("x", "stop", now=False)

    def action_stop_now(self) -> None:
        """Kill the gang after one question."""
        self._stop("X", "kill", now=True)

    def _stop(self, key: str, verb: str, *, now: bool) -> None:
        launch = self.desk.view.launch
        if launch and launch.state.live:
            question = f"{verb} #{launch.id} {launch.request.profile}{_busy(launch)}?"
            self.ask(question, key, lambda: self.desk.client.down(Down(now=now)))
        else:
            self.tell(PanelError("nothing is running", "r launches"))
