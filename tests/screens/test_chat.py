"""The chat screen: an answer that streams, is stopped, is counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.pilot import Pilot

from panel.domain.errors import PanelError
from panel.domain.states import LaunchState
from tests.screens.stage import Engine, Node, crashed, panel, serving, shown, until


@pytest.fixture
def engine() -> type[Engine]:
    """Return a class of engine clients of this test's own."""
    return type("Engine", (Engine,), {"closed": 0})


@asynccontextmanager
async def opened(node: Node, engine: type[Engine]) -> AsyncIterator[Pilot[None]]:
    app = panel(node, engine=engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: "gpu-a" in shown(pilot))
        await pilot.press("k")
        await until(pilot, lambda: pilot.app.screen.NAME == "talk")
        yield pilot


async def test_an_answer_streams_and_shows_its_speed(engine: type[Engine]) -> None:
    async with opened(Node(serving()), engine) as pilot:
        await pilot.press(*"[b]Hi?", "enter")
        await until(pilot, lambda: "The sea is deep." in shown(pilot))
        assert "[b]Hi?" in shown(pilot)
        header = shown(pilot).splitlines()[0]
        assert "tok/s" in header
        assert "ttft" in header
        assert "accept 2.6" in header
        await until(pilot, lambda: engine.closed == 1)


async def test_escape_sequences_in_an_answer_reach_no_terminal(engine: type[Engine]) -> None:
    engine.pieces = (
        "  safe \x1b]52;c;aGk=\x07",
        "\x1b[2Jand\x07 sound",
    )
    async with opened(Node(serving()), engine) as pilot:
        await pilot.press(*"go", "enter")
        await until(pilot, lambda: "     safe and␇ sound" in shown(pilot))


async def test_escape_stops_the_answer_then_leaves(engine: type[Engine]) -> None:
    engine.until = 2
    async with opened(Node(serving()), engine) as pilot:
        await pilot.press(*"go", "enter")
        await until(pilot, lambda: "The sea" in shown(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: engine.closed == 1)
        assert pilot.app.screen.NAME == "talk"
        assert "The sea" in shown(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen.NAME == "node")


async def test_leaving_the_screen_for_good_stops_the_answer(engine: type[Engine]) -> None:
    engine.until = 1
    async with opened(Node(serving()), engine) as pilot:
        await pilot.press(*"go", "enter")
        await until(pilot, lambda: "The" in shown(pilot))
    await asyncio.sleep(0)
    assert engine.closed == 1


async def test_clear_forgets_the_conversation(engine: type[Engine]) -> None:
    async with opened(Node(serving()), engine) as pilot:
        await pilot.press(*"go", "enter")
        await until(pilot, lambda: "deep." in shown(pilot))
        await pilot.press("ctrl+l")
        await until(pilot, lambda: "Enter sends it" in shown(pilot))


async def test_without_an_engine_it_says_what_to_press(engine: type[Engine]) -> None:
    async with opened(Node(crashed()), engine) as pilot:
        assert "then r launches one" in shown(pilot)
        await pilot.press(*"go", "enter")
        await until(pilot, lambda: "no engine is serving (Esc" in shown(pilot))


async def test_a_failing_engine_is_told(engine: type[Engine]) -> None:
    async def chat(self, turns, max_tokens):  # type: ignore[no-untyped-def]
        raise PanelError("the engine refused: too long")
        yield

    engine.chat = chat  # type: ignore[method-assign]
    async with opened(Node(serving()), engine) as pilot:
        await pilot.press(*"go", "enter")
        await until(pilot, lambda: "the engine refused: too long" in shown(pilot))
        await until(pilot, lambda: engine.closed == 1)


async def test_letters_that_are_keys_elsewhere_are_typed(engine: type[Engine]) -> None:
    async with opened(Node(serving()), engine) as pilot:
        await pilot.press(*"q?xr")
        await until(pilot, lambda: "q?xr" in shown(pilot))
        await pilot.press("f1")
        await until(pilot, lambda: pilot.app.screen.NAME == "help")


async def test_a_stopped_engine_accepts_nothing(engine: type[Engine]) -> None:
    node = Node(serving())
    async with opened(node, engine) as pilot:
        assert "accept 2.6" in shown(pilot)
        node.say(serving(state=LaunchState.STOPPED))
        await until(pilot, lambda: "accept" not in shown(pilot))


async def test_hints_are_whole_on_a_small_screen(engine: type[Engine]) -> None:
    app = panel(Node(serving()), engine=engine)
    async with app.run_test(size=(60, 15)) as pilot:
        await until(pilot, lambda: "gpu-a" in shown(pilot))
        await pilot.press("k")
        await until(pilot, lambda: "knows" in shown(pilot))
        assert " ".join(shown(pilot).split()).count("speaks English and knows nothing") == 1
        assert "F1 more" in shown(pilot)
