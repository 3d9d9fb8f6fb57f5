"""The logs screen with a node whose logs grow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stage import Engine, Node, panel, serving, shown, until, with_sizes
from textual.pilot import Pilot

from panel.screens.panel import Panel
from panel.screens.view import View
from panel.widgets.log_view import LogView

RANKS = ("rank-0", "rank-1")


@asynccontextmanager
async def opened(node: Node, lines: int = 40) -> AsyncIterator[Pilot[None]]:
    node.say(with_sizes(serving(), node.write(lines, *RANKS)))
    async with panel(node, engine=Engine).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "tok/s" in shown(pilot))
        await pilot.press("l")
        await until(pilot, lambda: f"step {lines - 1}" in shown(pilot))
        yield pilot


def log_size(view: View) -> int:
    return view.launch.log_sizes["rank-0"] if view.launch else 0


def grow(node: Node, lines: int) -> None:
    node.say(with_sizes(serving(), node.write(lines, *RANKS)))


async def test_it_follows_until_one_looks_back_and_counts_what_came() -> None:
    node = Node()
    async with opened(node) as pilot:
        grow(node, 45)
        await until(pilot, lambda: "step 44" in shown(pilot))
        await pilot.press("up")
        await until(pilot, lambda: "+0 new" in shown(pilot))
        top = shown(pilot).splitlines()[1]
        grow(node, 51)
        await until(pilot, lambda: "+12 new" in shown(pilot))
        assert shown(pilot).splitlines()[1] == top
        await pilot.press("G")
        await until(pilot, lambda: "step 50" in shown(pilot) and "follow " in shown(pilot))


async def test_digits_pick_ranks_and_a_shows_all_again() -> None:
    async with opened(Node()) as pilot:
        await pilot.press("1")
        await until(pilot, lambda: "rank 1 " in shown(pilot) and "40 lines" in shown(pilot))
        await pilot.press("0")
        await until(pilot, lambda: "ranks 0 1" in shown(pilot) and "80 lines" in shown(pilot))
        await pilot.press("1")
        await until(pilot, lambda: "rank 0 " in shown(pilot))
        await pilot.press("a")
        await until(pilot, lambda: "all ranks" in shown(pilot))


async def test_search_walks_the_hits_and_escape_forgets_them() -> None:
    async with opened(Node()) as pilot:
        await pilot.press("slash", *"TOOK")
        await until(pilot, lambda: "8 lines" in shown(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: "8/8" in shown(pilot))
        await pilot.press("N")
        await until(pilot, lambda: "7/8" in shown(pilot))
        await pilot.press("n", "n")
        await until(pilot, lambda: "1/8" in shown(pilot))
        await pilot.press("slash", "escape")
        await until(pilot, lambda: "/8" not in shown(pilot))
        assert pilot.app.screen.NAME == "logs"


async def test_older_text_is_loaded_at_the_top() -> None:
    node = Node()
    node.say(with_sizes(serving(), node.write(5001, *RANKS)))
    async with panel(node, engine=Engine).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "tok/s" in shown(pilot))
        await pilot.press("l")
        await until(pilot, lambda: "step 5000" in shown(pilot))
        await pilot.press("g")
        first = shown(pilot).splitlines()[1]
        assert "step 0 " not in first
        await pilot.press("g")
        await until(pilot, lambda: "10,002 lines" in shown(pilot))
        assert shown(pilot).splitlines()[1] == first
        await pilot.press("g")
        await until(pilot, lambda: "step 0 " in shown(pilot).splitlines()[1])


async def test_long_lines_scroll_sideways_or_wrap() -> None:
    node = Node()
    node.texts["rank-0"] = "x" * 70 + "END of it" + "\n"
    node.say(with_sizes(serving(), {"rank-0": len(node.texts["rank-0"])}))
    async with panel(node, engine=Engine).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "tok/s" in shown(pilot))
        await pilot.press("l")
        await until(pilot, lambda: "xxx" in shown(pilot))
        assert "END of it" not in shown(pilot)
        await pilot.press("right")
        await until(pilot, lambda: "END of it" in shown(pilot))
        await pilot.press("left", "w")
        await until(pilot, lambda: "END of it" in shown(pilot).splitlines()[2])


async def test_only_lines_on_screen_are_rendered() -> None:
    async with opened(Node(), lines=2001) as pilot:
        view = pilot.app.screen.query_one(LogView)
        assert len(view.model.visible) == 4002
        assert len(view._strips) < 200


async def test_sources_that_did_not_grow_are_not_asked_for() -> None:
    node = Node()
    asked: list[dict[str, object]] = []
    answer = node.logs

    async def logs(launch, at, limit):  # type: ignore[no-untyped-def]
        asked.append(dict(at))
        return await answer(launch, at, limit)

    async with opened(node) as pilot:
        node.logs = logs  # type: ignore[method-assign]
        size = len(node.texts["rank-1"])
        node.say(with_sizes(serving(), node.write(41, "rank-1")))
        await until(pilot, lambda: "step 40" in shown(pilot))
        node.say(with_sizes(serving(), node.write(41, "rank-1")))
        await pilot.pause()
        assert asked == [{"rank-1": size}]


async def test_a_storm_is_followed_by_its_tail_but_never_moves_one_who_looks_back() -> None:
    node = Node()
    async with opened(node) as pilot:
        await pilot.press("up")
        await until(pilot, lambda: "+0 new" in shown(pilot))
        before = shown(pilot).splitlines()[1:]
        grow(node, 3001)
        assert isinstance(pilot.app, Panel)
        desk, size = pilot.app.desk, len(node.texts["rank-0"])
        await until(pilot, lambda: log_size(desk.view) == size)
        assert shown(pilot).splitlines()[1:] == before
        await pilot.press("f")
        grow(node, 3002)
        await until(pilot, lambda: "step 3001" in shown(pilot))
        view = pilot.app.screen.query_one(LogView)
        assert len(view.model.visible) < 3000
