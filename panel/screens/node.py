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
from panel.screens.gpus import GpusScreen
from panel.screens.hang import HangScreen
from panel.screens.history import HistoryScreen
from panel.screens.keys import key, rank_keys
from panel.screens.launch import LaunchScreen
from panel.screens.log_feed import KeepUp, LogFeed
from panel.screens.log_words import news_words, picked_words
from panel.screens.logs import LogsScreen
from panel.screens.series_feed import SeriesFeed
from panel.screens.stacks import StacksScreen
from panel.screens.triage import TriageScreen
from panel.screens.view import Desk, View
from panel.widgets import node_charts, node_rows, speculation_rows
from panel.widgets.log_look import Look
from panel.widgets.log_model import Picked
from panel.widgets.log_view import LogView
from panel.widgets.notice_rows import notices
from panel.widgets.rank_rows import ranks as rank_rows
from panel.widgets.rows import Rows
from panel.widgets.spans import BLANK, Span, Tone
from panel.widgets.words import size

_TAIL = 16 << 10
_SCREENS: dict[str, type[PanelScreen]] = {
    "logs": LogsScreen,
    "launch": LaunchScreen,
    "chat": ChatScreen,
    "gpus": GpusScreen,
    "stacks": StacksScreen,
    "hang": HangScreen,
    "history": HistoryScreen,
    "triage": TriageScreen,
}


def _busy(launch: LaunchView) -> str:
    running = launch.metrics.running if launch.metrics else 0
    return f" while {running} requests are running" if running else ""


class NodeScreen(PanelScreen):
    """Where the panel starts."""

    NAME = "node"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("l", "go('logs')", "logs", "Logs of all ranks in one view", "node.logs"),
        key("t", "go('triage')", "triage", "What the last failure was", "node.triage"),
        key("c", "go('launch')", "configure", "Change flags and see the plan", "node.configure"),
        key("k", "go('chat')", "talk", "Talk to the model that is served", "node.talk"),
        key("g", "go('gpus')", "gpus", "GPUs: links, alarms, the slow rank", "node.gpus"),
        key("s", "go('stacks')", "stacks", "Where every rank stands now", "node.stacks"),
        key("d", "go('hang')", "diagnose", "A hang, step by step", "node.diagnose"),
        key("h", "go('history')", "history", "Earlier launches", "node.history"),
        key("r", "relaunch", "relaunch", "Launch again with the same flags", "node.relaunch"),
        key("x", "stop", "stop", "Stop the engine: TERM, grace, KILL; asks once", "node.stop"),
        key("X", "stop_now", "stop now", "Kill the engine at once; asks once", "node.stop_now"),
        *rank_keys("node"),
    ]

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.feed = LogFeed(desk.client, _TAIL, folds=True)
        self._keep_up = KeepUp()
        self._figures = SeriesFeed(desk.client, node_charts.PREFIX, limit=node_charts.SECONDS)
        self._plan: Plan | None = None
        self._trouble = ""
        self._planned_for: tuple[Profile, ...] | None = None
        self._blamed_for: str | None = None

    def compose_body(self) -> ComposeResult:
        """Yield the table, the verdict, the charts and the end of the logs."""
        yield Rows([BLANK], id="figures")
        yield Rows(id="ranks")
        yield Rows(id="verdict")
        yield Rows(id="charts")
        yield Rows([()], id="log-title")
        yield LogView(self.feed.rows, Look(self.desk.glyphs), id="log")

    def keys(self, view: View) -> Iterable[str | tuple[str, str]]:
        """Offer what makes sense in this state."""
        launch = view.launch
        if launch is None:
            first = ("node.relaunch", "launch")
            return first, "node.configure", "node.gpus", "node.history", "help", "leave"
        failed = launch.verdict is not None and launch.verdict.troubled
        triage = ("node.triage",) if failed else ()
        if launch.suspicion is not None:
            look = ("node.diagnose", "node.stacks", "node.logs", "node.gpus")
            return *triage, *look, "node.relaunch", "node.stop", "help"
        if view.live:
            look = (*triage, "node.logs", "node.stacks", "node.gpus")
            last = () if triage else ("node.talk",)
            return *look, "node.configure", "node.relaunch", "node.stop", *last, "help"
        kept = view.snapshot is not None and view.snapshot.kept is not None
        free = (("node.stop", "free weights"),) if kept else ()
        then = ("node.configure", "node.relaunch", *free, "node.history", "help", "leave")
        return *triage, "node.logs", *then

    def show(self, view: View) -> None:
        """Paint the node."""
        snapshot, glyphs, width = view.snapshot, self.desk.glyphs, self.size.width
        ranks, verdict = self.query_one("#ranks", Rows), self.query_one("#verdict", Rows)
        log, title = self.query_one(LogView), self.query_one("#log-title", Rows)
        if snapshot is None:
            told = Span(view.hindrance, Tone.WARN if view.lost else Tone.DIM)
            self.header((Span(" moepanel  ", Tone.BRIGHT), told))
            return
        lost = view.lost is not None
        if lost:
            self.header(node_rows.lost(snapshot, self.desk.goes_on, width, glyphs))
        else:
            self.header(node_rows.header(snapshot, width, glyphs))
        figures = node_rows.figures(snapshot, width, glyphs)
        if lost and view.as_of is not None:
            figures = node_rows.past(snapshot, self.desk.clock() - view.as_of)
        self.query_one("#figures", Rows).show([figures])
        launch = snapshot.launch
        log.display = title.display = launch is not None
        if launch is None:
            self._plan_first(view)
            rows = node_rows.empty(self._plan, snapshot.profiles, self._trouble, width, glyphs)
            ranks.show(rows)
            return
        ranks.show(rank_rows(snapshot, launch, width, glyphs))
        found = node_rows.verdict(launch, width, glyphs)
        found += node_rows.still_held(launch, width, glyphs)
        found += node_rows.kept(snapshot, width, glyphs)
        drafts = speculation_rows.pane(launch.metrics if view.live else None, width)
        verdict.show([*drafts, *found, *notices(snapshot, width, glyphs)])
        self._show_charts(view, launch)
        self._choose_log(launch)
        whose = f"{picked_words(self.feed.rows.picked)}, folded"
        name = (Span("log ", Tone.BRIGHT), Span(whose, Tone.DIM))
        note = (Span(f"{launch.note}  ", Tone.WARN),) if launch.note else ()
        title.show([glyphs.rule(name, width, (*note, news_words(log.page)))])
        self._pull()

    def _show_charts(self, view: View, launch: LaunchView) -> None:
        """Draw the figures of a running launch where the screen has room for them."""
        width, height = self.size
        charts, room = self.query_one("#charts", Rows), node_charts.room_for_charts(width, height)
        if room and view.lost is None and self._figures.due(launch):
            self._pull_figures(launch)
        series = self._figures.series
        shown = node_charts.charts(series, width, height, self.desk.glyphs) if view.live else []
        charts.show(shown)

    @work(group="figures", exclusive=True)
    async def _pull_figures(self, launch: LaunchView) -> None:
        if await self._figures.pull(launch):
            self.refresh_view()

    def _choose_log(self, launch: LaunchView) -> None:
        """Show all logs of a new launch, and that of the process to blame once it failed."""
        if self.feed.turn_to(launch.id, launch.uuid):
            self._pick(frozenset())
        self.feed.grown(launch.log_sizes)
        if launch.state.failed and self._blamed_for != launch.uuid:
            self._blamed_for = launch.uuid
            blamed = node_rows.first_failed(launch)
            self._pick(frozenset({blamed.source} if blamed else ()))

    def _pick(self, picked: Picked) -> None:
        self.feed.pick(picked)
        self.query_one(LogView).update()

    @work(group="logs")
    async def _pull(self) -> None:
        view = self.query_one(LogView)
        await self._keep_up.run(lambda: self.feed, lambda: not view.page.follows, self._show_log)

    def _show_log(self) -> None:
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
        self._pick(self.feed.rows.picked ^ {rank})
        self.refresh_view()

    def action_pick_all(self) -> None:
        """Show the logs of all ranks."""
        self._pick(frozenset())
        self.refresh_view()

    def action_go(self, name: str) -> None:
        """Open another screen."""
        self.app.push_screen(_SCREENS[name](self.desk))

    def action_relaunch(self) -> None:
        """Launch again; ask first when that stops an engine."""
        launch = self.desk.view.launch
        drill = ", its drill too; c takes that out" if launch and "drill" in launch.chips else ""
        if launch and launch.state.live:
            question = f"stop and relaunch #{launch.id}{_busy(launch)}{drill}?"
            self.ask(question, "r", lambda: self.desk.client.relaunch(Relaunch()))
        elif launch and drill:
            question = f"launch as #{launch.id}{drill}?"
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
        elif kept := self.desk.view.snapshot and self.desk.view.snapshot.kept:
            question = f"let go of the kept weights ({size(kept.bytes)})?"
            self.ask(question, key, lambda: self.desk.client.down(Down(now=now)))
        else:
            self.tell(PanelError("nothing is running", "r launches"))
