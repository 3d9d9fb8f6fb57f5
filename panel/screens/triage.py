"""The triage screen: who failed first, why, and what to change."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType

from panel.domain.errors import PanelError
from panel.domain.snapshot import LaunchView
from panel.domain.verdict import Advice, Verdict
from panel.screens.keys import key
from panel.screens.launch import LaunchScreen
from panel.screens.logs import LogsScreen
from panel.screens.stacks import StacksScreen
from panel.screens.text import TextScreen
from panel.screens.triage_feed import gather
from panel.screens.view import Desk, View
from panel.widgets.draft import Draft
from panel.widgets.findings import Findings, spot_of
from panel.widgets.prompt import Prompt
from panel.widgets.spans import BLANK, Row, Span, Tone
from panel.widgets.triage_advice import applicable
from panel.widgets.triage_report import report
from panel.widgets.triage_rows import Case, Look, page
from panel.widgets.words import ago

_AGE_S = 1.0
"""How often the age of the failure is painted again."""
_REPORT = "report.md"


class TriageScreen(TextScreen, inherit_bindings=False):
    """The verdict on one launch; a newer launch is only mentioned."""

    NAME = "triage"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("a", "apply", "apply", "To the launch screen with the advised change", "triage.apply"),
        key("tab", "choose", "next", "Choose other advice to apply", "triage.choose", "Tab"),
        key("o", "log", "log", "The log at the deciding line", "triage.log"),
        key("s", "stacks", "stacks", "Where every rank of a hang stands now", "triage.stacks"),
        key("f", "folder", "folder", "Show and copy the path of the evidence", "triage.folder"),
        key("y", "report", "report", "Copy and save a bug report in Markdown", "triage.report"),
        key(
            "N",
            "note",
            "note",
            "Write down what you know; it stays with the evidence",
            "triage.note",
        ),
        key("enter", "unfold", "frames", "All frames, or the last", "triage.unfold", "Enter"),
        *TextScreen.BINDINGS,
    ]

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.findings = Findings()
        self._launch: LaunchView | None = None
        self._read: object = None
        """What the findings were read for."""
        self._unfolded = False
        self._chosen = 0

    def compose_body(self) -> ComposeResult:
        """Yield the body, and the line that notes are typed in."""
        yield from super().compose_body()
        yield Prompt()

    def on_mount(self) -> None:
        """Let the age of the failure grow."""
        self.set_interval(_AGE_S, self._grow_older)

    def keys(self, view: View) -> Iterable[str]:
        """Offer what the verdict has."""
        if self._failure is None:
            return "back", "help"
        apply = ("triage.apply",) if self._changing else ()
        choose = ("triage.choose",) if len(self._changing) > 1 else ()
        unfold = ("triage.unfold",) if self.findings.trace else ()
        stacks = ("triage.stacks",) if self._hangs else ()
        others = ("triage.log", *stacks, "triage.folder", "triage.report", "triage.note")
        return *apply, *choose, *others, *unfold, "back", "help"

    def show(self, view: View) -> None:
        """Paint the verdict."""
        if view.launch and not self._newer(view):
            self._launch = view.launch
        launch, verdict = self._launch, self._failure
        title: Row = ()
        end: Row = ()
        if launch is not None:
            title = self.named(launch)
        if launch is not None and verdict is not None:
            end = self._age(launch, verdict)
            if _matter(launch, verdict) != self._read and view.lost is None:
                self._gather(launch, verdict, view)
        if view.launch and self._newer(view):
            end = (Span(f"#{view.launch.id} is {view.launch.state.value} since ", Tone.WARN),)
        self.titled(title, end)
        super().show(view)

    def rows(self, view: View) -> Iterable[Row]:
        """Return the verdict's rows."""
        launch, verdict = self._launch, self._failure
        if launch is None or verdict is None:
            told = launch.verdict.told if launch and launch.verdict else ""
            nothing = "nothing has failed"
            text = told if told.startswith(nothing) else f"{nothing}; {told}" if told else nothing
            return [BLANK, (Span(f"   {text}", Tone.DIM),)]
        width, height = self.text_width, self.size.height
        look = Look(width, height, self.desk.glyphs, self._unfolded, self._chosen)
        return page(Case(launch, verdict, self.findings), look)

    @property
    def _failure(self) -> Verdict | None:
        verdict = self._launch.verdict if self._launch else None
        return verdict if verdict and verdict.troubled else None

    @property
    def _changing(self) -> list[Advice]:
        return applicable(self._failure) if self._failure else []

    @property
    def _hangs(self) -> bool:
        return self._failure is not None and self._launch is not None and self._launch.state.live

    def _newer(self, view: View) -> bool:
        """Whether another launch than the failed one on screen is the newest."""
        shown = self._launch
        return bool(view.launch and shown and self._failure and view.launch.uuid != shown.uuid)

    def _age(self, launch: LaunchView, verdict: Verdict) -> Row:
        first = verdict.t if verdict.t_first is None else verdict.t_first
        age = Span(f"{ago(self.desk.clock() - launch.t0_unix - first)} ", Tone.BRIGHT)
        return (age,) if verdict.final else (Span("not final yet  ", Tone.WARN), age)

    @work(group="findings", exclusive=True)
    async def _gather(self, launch: LaunchView, verdict: Verdict, view: View) -> None:
        self._read = _matter(launch, verdict)
        host = view.snapshot.host.name if view.snapshot else ""
        self.findings = await gather(self.desk.client, launch, verdict, host)
        self.refresh_view()

    def action_apply(self) -> None:
        """Open the launch screen with the change in its draft."""
        changing = self._changing
        if changing:
            draft = Draft().with_flags(changing[self._chosen % len(changing)].change)
            self.app.push_screen(LaunchScreen(self.desk, draft), lambda _: self.action_back())
        else:
            self.tell(PanelError("no advice here changes a flag", "Esc, then c, for all flags"))

    def action_choose(self) -> None:
        """Point at the next advice that changes a flag."""
        self._chosen = (self._chosen + 1) % max(len(self._changing), 1)
        self.refresh_view()

    def action_unfold(self) -> None:
        """Show all frames, or the last one."""
        self._unfolded = not self._unfolded
        self.refresh_view()

    def action_log(self) -> None:
        """Open the logs at the deciding line."""
        launch, verdict = self._launch, self._failure
        spot = spot_of(launch, verdict) if launch and verdict else None
        if launch is None or spot is None:
            self.tell(PanelError("no log speaks for this verdict", "Esc, then l, for all logs"))
        elif self._newer(self.desk.view):
            told = f"moepanel logs --launch {launch.id}"
            self.tell(PanelError("a newer launch has the logs screen", told))
        else:
            self.app.push_screen(LogsScreen(self.desk, spot))

    def action_stacks(self) -> None:
        """Take the stacks of a gang that stands still."""
        if self._hangs and not self._newer(self.desk.view):
            self.app.push_screen(StacksScreen(self.desk))
        else:
            self.tell(PanelError("no gang is left to look into", "f leads to the stacks taken"))

    def action_folder(self) -> None:
        """Show and copy where the evidence is."""
        if self._launch is not None:
            self.app.copy_to_clipboard(self._launch.folder)
            self._say(f"evidence, copied: {self._launch.folder}")

    def action_report(self) -> None:
        """Copy the bug report, and save it beside the evidence."""
        launch, verdict, snapshot = self._launch, self._failure, self.desk.view.snapshot
        if launch is None or verdict is None or snapshot is None:
            return
        hidden = {str(Path.home()): "~", snapshot.host.name: "node"}
        text = report(launch, verdict, self.findings, hidden)
        self.app.copy_to_clipboard(text)
        path = Path(launch.folder, _REPORT)
        try:
            path.touch(0o600)
            path.write_text(text)
        except OSError as error:
            self._say(f"report copied; it is not in a file here: {error}")
        else:
            self._say(f"report copied, and saved as {path}")

    def action_note(self) -> None:
        """Ask for a note."""
        if self._launch is not None and self._failure is not None:
            self.query_one(Prompt).open("note", note="Enter keeps it with the evidence")

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        """Keep the note that was typed."""
        if self._launch is not None:
            self._keep(self._launch, event.text)

    @work(group="note", exclusive=True)
    async def _keep(self, launch: LaunchView, text: str) -> None:
        try:
            kept = await self.desk.client.add_note(launch.id, text)
        except PanelError as error:
            self.query_one(Prompt).refuse(str(error))
            return
        self.query_one(Prompt).close()
        self.findings = self.findings._replace(notes=kept.notes)
        self.refresh_view()

    def _grow_older(self) -> None:
        if self.is_current:
            self.refresh_view()

    def _say(self, text: str) -> None:
        self.notify(text, timeout=8, markup=False)


def _matter(launch: LaunchView, verdict: Verdict) -> object:
    """Return what the findings depend on: of a hang the headline alone changes each second."""
    labels = verdict.secondary
    return launch.uuid, verdict.root_ranks, verdict.evidence, labels, verdict.final
