"""Keys that come in one burst act as if they were typed slowly."""

from __future__ import annotations

import asyncio
import re

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from panel.domain.plan import Plan
from panel.domain.wire import Down, Relaunch, Up
from panel.screens.chat import ChatScreen
from panel.screens.launch import LaunchScreen
from panel.screens.logs import LogsScreen
from tests.screens.stage import Engine, Node, panel, serving, shown, until, with_sizes

ENTER, ESCAPE = "\r", "\x1b"
NAMES = {ENTER: "enter", ESCAPE: "escape", "/": "slash", "&": "ampersand", " ": "space",
         ".": "full_stop", "=": "equals_sign"}  # fmt: skip


def burst(pilot: Pilot[None], text: str) -> None:
    """Type a text in one instant, as one read from the terminal brings it."""
    for character in text:
        pilot.app.post_message(events.Key(NAMES.get(character, character), character))


def node_with_logs() -> Node:
    node = Node()
    node.say(with_sizes(serving(), node.write(60, *(f"rank-{rank}" for rank in range(8)))))
    return node


class Slow(Node):
    """Plans only when told to."""

    def __init__(self) -> None:
        super().__init__(serving())
        self.planning = asyncio.Event()

    async def plan(self, request: Up | Relaunch) -> Plan:
        await self.planning.wait()
        return await super().plan(request)


@pytest.mark.parametrize(
    ("typed", "request_"),
    [
        ("cerr", Relaunch(set={"ep": "on"})),
        ("cm0.9\rrr", Relaunch(set={"mem-fraction-static": "0.9"})),
        ("c/sampling\r7\rrr", Relaunch(set={"seed": "7"})),
        ("cpkimi\rrr", Relaunch(profile="kimi")),
        ("cesurr", Relaunch(set={"ep": "on"})),
        ("rr", Relaunch()),
        ("xx", Down()),
    ],
)
async def test_a_burst_does_what_slow_keys_do(typed: str, request_: object) -> None:
    node = Node(serving())
    async with panel(node, engine=Engine).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "gpu-a" in shown(pilot))
        burst(pilot, typed)
        await until(pilot, lambda: request_ in node.requests, str(node.requests))
        await until(pilot, lambda: pilot.app.screen.NAME == "node")


async def test_keys_wait_for_the_plan_they_act_on_and_escape_leaves_it() -> None:
    node = Slow()
    async with panel(node, engine=Engine).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "gpu-a" in shown(pilot))
        burst(pilot, "ce")
        await until(pilot, lambda: "asking the supervisor for a plan" in shown(pilot))
        burst(pilot, "r" + ESCAPE)
        await until(pilot, lambda: pilot.app.screen.NAME == "node")
        burst(pilot, "ce")
        await until(pilot, lambda: pilot.app.screen.NAME == "next launch")
        node.planning.set()
        screen = pilot.app.screen
        assert isinstance(screen, LaunchScreen)
        await until(pilot, lambda: screen.draft.set == {"ep": "on"})
        assert not any(isinstance(request, Relaunch) and request.set for request in node.requests)


async def test_a_pattern_typed_with_its_key_is_sought() -> None:
    async with panel(node_with_logs(), engine=Engine).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "gpu-a" in shown(pilot))
        burst(pilot, "l&step 7 took\r/took\r")
        await until(pilot, lambda: "&step 7 took 8 lines" in shown(pilot))
        await until(pilot, lambda: bool(re.search(r"/took [1-8]/48", shown(pilot))))
        burst(pilot, "/" + ESCAPE)
        await until(pilot, lambda: "/took" not in shown(pilot))
        screen = pilot.app.screen
        assert isinstance(screen, LogsScreen)
        assert "lines" in shown(pilot).splitlines()[0]


async def test_a_line_typed_with_the_key_of_the_chat_is_sent() -> None:
    async with panel(Node(serving()), engine=Engine).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "gpu-a" in shown(pilot))
        burst(pilot, "kgood morning\r")
        await until(pilot, lambda: "The sea is deep." in shown(pilot))
        screen = pilot.app.screen
        assert isinstance(screen, ChatScreen)
        assert screen.turns[0].content == "good morning"
        assert screen.query_one(Input).value == ""


async def test_the_first_frame_of_a_screen_is_not_empty() -> None:
    """What is painted first has the title and the keys."""
    node = Slow()
    async with panel(node, engine=Engine).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "gpu-a" in shown(pilot))
        frames: list[str] = []
        display = type(pilot.app)._display

        def painted(app, screen, renderable) -> None:  # type: ignore[no-untyped-def]
            if renderable is not None and not app._batch_count:
                frames.append(shown(pilot))
            display(app, screen, renderable)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(pilot.app), "_display", painted)
            await pilot.press("c")
            await until(pilot, lambda: "asking the supervisor" in shown(pilot))
        first = next(frame for frame in frames if "tok/s" not in frame)
        assert "next launch" in first
        assert "asking the supervisor" in first
        assert "Esc back" in first
