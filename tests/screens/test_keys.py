"""No key has two meanings on one screen, the help is complete, the key line fits 80 columns."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from textual.binding import Binding

from panel.domain.snapshot import Snapshot
from panel.screens.base import PanelScreen
from panel.screens.chat import ChatScreen
from panel.screens.gpus import GpusScreen
from panel.screens.hang import HangScreen
from panel.screens.help import HelpScreen, table
from panel.screens.history import HistoryScreen
from panel.screens.keys import bindings_of
from panel.screens.launch import LaunchScreen
from panel.screens.logs import LogsScreen
from panel.screens.node import NodeScreen
from panel.screens.panel import Panel
from panel.screens.record import RecordScreen
from panel.screens.stacks import StacksScreen
from panel.screens.triage import TriageScreen
from panel.widgets.rows import Rows
from panel.widgets.spans import cells
from tests.screens.probe_stage import SICK, on_gpus, suspected
from tests.screens.stage import (
    Engine,
    Node,
    crashed,
    hung,
    launching,
    panel,
    serving,
    shown,
    snapshot,
    until,
)

SCREENS = [ChatScreen, GpusScreen, HangScreen, HelpScreen, HistoryScreen, LaunchScreen, LogsScreen,
           NodeScreen, RecordScreen, StacksScreen, TriageScreen]  # fmt: skip
OPENED_BY = {"l": "logs", "c": "next launch", "k": "talk", "h": "history", "t": "triage",
             "g": "gpus", "s": "stacks", "d": "hang", "question_mark": "help"}  # fmt: skip


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.__name__)
class TestTables:
    """The tables themselves."""

    def test_every_screen_is_here(self, screen: type[PanelScreen]) -> None:
        def heirs(kind: type[PanelScreen]) -> set[type[PanelScreen]]:
            return {kind}.union(*(heirs(child) for child in kind.__subclasses__()))

        shown = {kind for kind in heirs(PanelScreen) if not kind.__subclasses__()}
        assert shown == set(SCREENS)

    def test_no_key_has_two_meanings(self, screen: type[PanelScreen]) -> None:
        keys = Counter(
            key for binding in bindings_of(screen, Panel) for key in binding.key.split(",")
        )
        assert [key for key, times in keys.items() if times > 1] == []

    def test_every_binding_is_explained_and_can_be_mapped(self, screen: type[PanelScreen]) -> None:
        declared = [b for b in (*screen.BINDINGS, *Panel.BINDINGS) if isinstance(b, Binding)]
        assert all(binding.tooltip and binding.id and binding.description for binding in declared)
        names = Counter(binding.id for binding in declared)
        assert [name for name, times in names.items() if times > 1] == []

    def test_every_action_exists(self, screen: type[PanelScreen]) -> None:
        for owner in (screen, Panel):
            for binding in bindings_of(owner):
                assert hasattr(owner, f"action_{binding.action.partition('(')[0]}"), binding

    def test_help_lists_every_key(self, screen: type[PanelScreen]) -> None:
        listed = table(bindings_of(screen))
        for binding in bindings_of(screen):
            assert (binding.key_display or binding.key, binding.tooltip) in listed


STATES = {"serving": serving(), "launching": launching(), "crashed": crashed(), "hung": hung(),
          "suspected": suspected(), "on_gpus": on_gpus(SICK), "empty": snapshot(None)}  # fmt: skip


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
@pytest.mark.parametrize("key", OPENED_BY)
async def test_key_lines_fit_in_every_state(state: Snapshot, key: str) -> None:
    async with panel(Node(state), engine=Engine).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "gpu-a" in shown(pilot))
        for _ in range(2):
            line = pilot.app.screen.query_one("#keys", Rows).rows[0]
            assert 10 < cells(line) <= 80
            await pilot.press(key)
            await until(pilot, lambda: OPENED_BY[key] == pilot.app.screen.NAME)


async def test_a_key_of_another_screen_does_nothing_here() -> None:
    node = Node(serving())
    async with panel(node, engine=Engine).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "tok/s" in shown(pilot))
        await pilot.press("l")
        await until(pilot, lambda: pilot.app.screen.NAME == "logs")
        await pilot.press("x", "r", "c", "h", "k", "t")
        await pilot.pause()
        assert pilot.app.screen.NAME == "logs"
        assert node.requests == []


async def test_the_palette_offers_the_keys_of_the_screen() -> None:
    async with panel(Node(serving()), engine=Engine).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "tok/s" in shown(pilot))
        await pilot.press("ctrl+p", *"talk")
        await until(pilot, lambda: "Talk to the model" in shown(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.screen.NAME == "talk")


def test_the_documentation_lists_the_keys_of_the_node_screen() -> None:
    text = (Path(__file__).parents[2] / "docs" / "commands.md").read_text("utf-8")
    listed = text.partition("## Keys")[2].partition("\n## ")[0]
    for binding in bindings_of(NodeScreen):
        shown = binding.key_display or binding.key
        assert all(f"`{each}`" in listed for each in shown.split("-")), shown
