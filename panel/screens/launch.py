"""The launch screen: change flags, see at once whether it can work, launch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType

from panel.domain.errors import PanelError
from panel.domain.flags import Flag
from panel.domain.plan import Plan, Problem
from panel.screens.base import PanelScreen
from panel.screens.choice import Choice, Option
from panel.screens.keys import BACK, key
from panel.screens.view import Desk, View
from panel.widgets import launch_rows
from panel.widgets.draft import Draft, editable, matching, memory_flag, value_of
from panel.widgets.launch_rows import FIELDS
from panel.widgets.prompt import Prompt
from panel.widgets.rows import Rows
from panel.widgets.spans import BLANK, Span, Tone

_PAUSE_S = 0.15
"""A held key asks for one plan, not for thirty."""
_NEED_NO_PLAN = ("e", "s", "u", "up", "down", "pageup", "pagedown")
_ROWS = ("ep", "spec", "graphs", "memory")
"""What the first rows of the form are about."""
_TOGGLE_NOTES = {
    "ep": "on, off, or the number of ranks that share the experts",
    "spec": "off, ngram or eagle3, or ngram:N with N drafted tokens",
    "graphs": "off, the greatest batch size, or a list joined by commas",
}


class LaunchScreen(PanelScreen):
    """What the next launch will be, against the one that runs."""

    NAME = "next launch"
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        key("e", "flip('ep')", "ep", "Expert parallelism on or off", "launch.ep"),
        key("s", "flip('spec')", "spec", "Speculation on or off; Enter edits it", "launch.spec"),
        key("g", "edit('graphs')", "graphs", "Batch sizes of captured graphs", "launch.graphs"),
        key("m", "edit('memory')", "memory", "Share of memory the engine takes", "launch.memory"),
        key("slash", "all_flags", "all flags", "Search and edit any flag", "launch.flags", "/"),
        key("up", "move(-1)", "up", "Row above", "launch.up", "↑"),
        key("down", "move(1)", "down", "Row below", "launch.down", "↓"),
        key("pageup", "scroll(-1)", "page up", "Rows above", "launch.pageup", "PgUp"),
        key("pagedown", "scroll(1)", "page down", "Rows below", "launch.pagedown", "PgDn"),
        key("enter", "enter", "edit", "Edit the row, or apply its remedy", "launch.enter", "Enter"),
        key("a", "apply", "apply", "Apply the remedy of the row, else the first", "launch.apply"),
        key("u", "undo", "undo", "Take the last change back", "launch.undo"),
        key("p", "profile", "profile", "Start from another profile", "launch.profile"),
        key("r", "launch", "relaunch", "Launch this, unless the plan refuses", "launch.launch"),
        key("R", "force", "force", "Launch although the plan refuses; asks once", "launch.force"),
    ]

    def __init__(self, desk: Desk, draft: Draft = Draft()) -> None:  # noqa: B008  (frozen)
        super().__init__(desk)
        self.draft = draft
        self.plan: Plan | None = None
        self._undo: list[Draft] = []
        self._trouble = ""
        self._flags: list[Flag] = []
        self._cursor = 0
        self._editing = ""
        self._opened_with = draft
        self._base: tuple[str, ...] | None = None
        """Chips of the plan without changes."""
        self._top = 0
        """The first row shown, where there is no room for all."""
        self._to_cursor = True
        """Whether the cursor has to be in sight."""

    def compose_body(self) -> ComposeResult:
        """Yield form and plan, and the line that edits a value."""
        yield Rows(id="form")
        yield Prompt()

    def on_mount(self) -> None:
        """Plan what stands."""
        self._replan(0)

    def keys(self, view: View) -> Iterable[str]:
        """Offer the remedy where there is one."""
        remedy = ("launch.apply",) if self._remedies() else ()
        last = ("launch.undo",) if self._undo else ("launch.profile",)
        return ("launch.launch", "launch.enter", *remedy, "launch.flags", *last, "back", "help")

    def holds(self, key: str) -> bool:
        """Whether the key acts on a plan that is still on its way; a toggle needs no new one."""
        if self.plan is None:
            return not self._trouble
        asks = any(w.group == "plan" and w.node is self and not w.is_finished for w in self.workers)
        return asks and (self.query_one(Prompt).display or key not in _NEED_NO_PLAN)

    # What is shown

    def show(self, view: View) -> None:
        """Paint the form and the plan."""
        plan, glyphs, width = self.plan, self.desk.glyphs, self.size.width
        launch = view.launch
        against = f"against #{launch.id} {launch.state.value} " if launch else ""
        profile = f"{plan.request.profile}/{plan.engine}  " if plan else ""
        self.titled(
            (Span(profile), Span(glyphs.plain(" ".join(plan.chips)) if plan else "", Tone.DIM)),
            (Span(against, Tone.DIM),),
        )
        form = self.query_one("#form", Rows)
        if plan is None:
            tone = Tone.BAD if self._trouble else Tone.DIM
            told = self._trouble or "asking the supervisor for a plan"
            form.show([BLANK, (Span(f"   {told}", tone),)])
            return
        page = launch_rows.page(plan, self._flags, launch, self._trouble, width, glyphs)
        self._cursor = min(self._cursor, len(page.targets) - 1)
        room, at = form.size.height, page.targets[self._cursor]
        if room - len(page.rows) > 2:
            more = launch_rows.command(plan, width, room - len(page.rows), glyphs)
            form.show([*page.rows, *more], at)
            return
        if self._to_cursor:
            self._top = min(max(self._top, at - room + 2), at)
        self._top = min(max(self._top, 0), max(len(page.rows) - room, 0))
        shown = launch_rows.window(page, self._top, room)
        form.show(shown, at - self._top if self._top <= at < self._top + room else None)

    # What changes the draft

    def _change(self, draft: Draft) -> None:
        self._undo.append(self.draft)
        self.draft = draft
        self._replan(_PAUSE_S)

    @work(group="plan", exclusive=True)
    async def _replan(self, pause: float) -> None:
        await asyncio.sleep(pause)
        try:
            self.plan = await self.desk.client.plan(self.draft.request())
            self._trouble = ""
            if self.draft == Draft(profile=self.draft.profile):
                self._base = self.plan.chips
            if not self._flags:
                self._flags = await self.desk.client.flags(self.plan.request.profile)
        except PanelError as error:
            self._trouble = str(error)
        self.refresh_view()

    @work(group="plan", exclusive=True)
    async def _try(self, draft: Draft) -> None:
        """Take an edited value if the supervisor understands it; else say why and keep it."""
        try:
            plan = await self.desk.client.plan(draft.request())
        except PanelError as error:
            self.query_one(Prompt).refuse(str(error))
            return
        self.query_one(Prompt).close()
        self._undo.append(self.draft)
        self.draft, self.plan, self._trouble = draft, plan, ""
        self.refresh_view()

    def action_flip(self, toggle: str) -> None:
        """Turn EP or speculation over."""
        if self.plan:
            self._select(toggle)
            self._change(self.draft.flipped(toggle, self.plan.chips, self._base))

    def action_edit(self, name: str) -> None:
        """Edit a toggle's text or a flag's value."""
        if self.plan is None:
            return
        self._select(name)
        memory = memory_flag(self._flags)
        if name == "memory" and memory is None:
            return
        name = memory.name if name == "memory" and memory else name
        if name in _TOGGLE_NOTES:
            text, note = editable(self.plan.chips, name), _TOGGLE_NOTES[name]
        else:
            flag = next(flag for flag in self._flags if flag.name == name)
            text, note = self.plan.values().get(name, flag.default or ""), flag.help
        self._editing = name
        self.query_one(Prompt).open(f"{name} =", text, f"{note}; empty: not passed")

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        """Take the value that was typed."""
        text = event.text.strip()
        self._try(self.draft.with_flags({self._editing: text}))

    def action_all_flags(self) -> None:
        """Choose a flag from all, then edit it."""
        plan = self.plan
        if plan is None:
            return

        def find(needle: str) -> list[Option]:
            found = matching(self._flags, needle)
            return [Option(flag.name, value_of(plan, flag), flag.help) for flag in found]

        def chosen(name: str | None) -> None:
            if name is not None:
                self.action_edit(name)

        self.app.push_screen(Choice(f"flags of {plan.engine}", find, self.desk.glyphs), chosen)

    def action_profile(self) -> None:
        """Start from another profile; what was changed is left behind, undo brings it back."""
        snapshot = self.desk.view.snapshot
        profiles = snapshot.profiles if snapshot else ()
        broken = snapshot.broken_profiles if snapshot else ()

        def find(needle: str) -> list[Option]:
            options = [Option(one.name, one.engine, one.note) for one in profiles]
            options += [Option(one.name, "wrong file", one.error) for one in broken]
            return [option for option in options if needle in option.name]

        def chosen(name: str | None) -> None:
            if name is not None:
                wrong = next((one.error for one in broken if one.name == name), "")
                if wrong:
                    self.tell(PanelError(wrong))
                    return
                self._flags, self._base = [], None
                self._change(Draft(profile=name))

        self.app.push_screen(Choice("profiles", find, self.desk.glyphs), chosen)

    def action_move(self, by: int) -> None:
        """Move the cursor over the form and the remedies."""
        self._cursor = min(max(self._cursor + by, 0), FIELDS + len(self._remedies()) - 1)
        self._to_cursor = True
        self.refresh_view()

    def _select(self, row: str) -> None:
        """Put the cursor on the row that a key is about."""
        if row in _ROWS:
            self._cursor, self._to_cursor = _ROWS.index(row), True

    def action_scroll(self, pages: int) -> None:
        """Look at other rows, where there is no room for all."""
        self._top += pages * max(self.query_one("#form", Rows).size.height - 2, 1)
        self._to_cursor = False
        self.refresh_view()

    def action_back(self) -> None:
        """Leave; what was changed is gone, and said to be."""
        if self.draft != self._opened_with:
            self.notify("left without launching: the changes are dropped", markup=False)
        super().action_back()

    def action_enter(self) -> None:
        """Do what the row under the cursor is for."""
        if self._cursor >= FIELDS:
            self.action_apply()
        elif self._cursor == FIELDS - 1:
            self.action_all_flags()
        else:
            self.action_edit(_ROWS[self._cursor])

    def action_apply(self) -> None:
        """Apply a remedy."""
        remedies = self._remedies()
        if remedies:
            problem = remedies[max(self._cursor - FIELDS, 0)]
            self._change(self.draft.with_flags(problem.remedy))

    def action_undo(self) -> None:
        """Take the last change back."""
        if self._undo:
            self.draft = self._undo.pop()
            self._replan(0)

    def _remedies(self) -> list[Problem]:
        problems = launch_rows.problems(self.plan) if self.plan else ()
        return [problem for problem in problems if problem.remedy]

    # What starts it

    def action_launch(self) -> None:
        """Launch what the plan shows."""
        if self.plan is None or self._trouble:
            self.tell(PanelError("there is no plan yet", self._trouble or "wait for it"))
        elif self.plan.refused:
            self.tell(PanelError("the plan refuses", "see the red lines; R launches all the same"))
        elif self.desk.view.live:
            self.ask("relaunch with these flags? the engine stops", "r", self._send)
        else:
            self.act(self._send)

    def action_force(self) -> None:
        """Launch in spite of the plan."""
        if self.plan is None or not self.plan.refused:
            self.tell(PanelError("the plan refuses nothing", "r launches"))
            return
        self.ask("launch although the plan refuses?", "R", self._send_forced)

    async def _send(self) -> None:
        await self.desk.client.relaunch(self.draft.request())
        self._sent()

    async def _send_forced(self) -> None:
        await self.desk.client.relaunch(self.draft.request(force=True))
        self._sent()

    def _sent(self) -> None:
        """Leave, and tell the screen that wants to know; Escape tells nothing."""
        if self.is_current:
            self.dismiss()
