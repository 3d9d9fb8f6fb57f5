"""The logs screen with a node whose logs grow: reading, picking, what rows look like."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from panel.client import Lost
from panel.domain.flags import Request
from panel.domain.states import LaunchState
from panel.domain.wire import LaunchRecord
from panel.screens.logs import LogsScreen
from panel.screens.panel import Panel
from panel.screens.view import View
from panel.widgets.log_view import LogView
from tests.screens.stage import (
    Engine,
    Node,
    launch,
    panel,
    serving,
    shown,
    snapshot,
    until,
    with_sizes,
)

RANKS = ("rank-0", "rank-1")


@asynccontextmanager
async def opened(
    node: Node, lines: int = 40, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[Pilot[None]]:
    node.world_size = 2
    node.say(with_sizes(serving(), node.write(lines, *RANKS)))
    async with panel(node, engine=Engine).run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: "tok/s" in shown(pilot))
        await pilot.press("l")
        await until(pilot, lambda: f"step {lines - 1}" in shown(pilot))
        yield pilot


def screen(pilot: Pilot[None]) -> LogsScreen:
    assert isinstance(pilot.app.screen, LogsScreen)
    return pilot.app.screen


def body(pilot: Pilot[None]) -> list[str]:
    """The lines of the log, without the column at the right."""
    return [line[:79].rstrip() for line in shown(pilot).splitlines()[1:-1]]


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
        top = body(pilot)[0]
        grow(node, 51)
        await until(pilot, lambda: "+12 new" in shown(pilot))
        assert body(pilot)[0] == top
        await pilot.press("G")
        await until(
            pilot,
            lambda: "step 50" in shown(pilot) and shown(pilot).splitlines()[0].endswith("follow"),
        )


async def test_digits_pick_ranks_and_a_shows_all_again() -> None:
    async with opened(Node()) as pilot:
        await pilot.press("1")
        await until(pilot, lambda: "rank 1 " in shown(pilot) and "step 19" in shown(pilot))
        assert {line[11:13].strip() for line in body(pilot)} == {"1"}
        await pilot.press("0")
        await until(pilot, lambda: "ranks 0 1" in shown(pilot))
        await pilot.press("1")
        await until(pilot, lambda: "rank 0 " in shown(pilot))
        await pilot.press("a")
        await until(pilot, lambda: "all ranks" in shown(pilot))


async def test_a_rank_is_picked_in_a_log_of_all() -> None:
    node = Node()
    node.texts["engine"] = "".join(
        f"[2026-07-12 13:55:{n % 60:02} TP{n % 4} EP{n % 4}] load {n}\n" for n in range(40)
    )
    node.world_size = 4
    node.say(with_sizes(serving(), {"engine": len(node.texts["engine"])}))
    async with panel(node, engine=Engine).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "tok/s" in shown(pilot))
        await pilot.press("l")
        await until(pilot, lambda: " 3 load 39" in shown(pilot))
        await pilot.press("2")
        await until(pilot, lambda: " 2 load 38" in shown(pilot) and "load 39" not in shown(pilot))
        await pilot.press("slash", *"load", "enter")
        await until(pilot, lambda: "/load 10/10" in shown(pilot))


async def test_it_goes_to_the_first_line_and_back_however_long_the_log() -> None:
    node = Node()
    async with opened(node, 20_001) as pilot:
        await pilot.press("g")
        await until(pilot, lambda: "step 0 " in body(pilot)[0])
        held = len(screen(pilot).feed.model.records)
        assert held < 5000
        for _ in range(40):
            await pilot.press("pagedown")
        await until(pilot, lambda: "step 4" in body(pilot)[0])
        await pilot.press("G")
        await until(pilot, lambda: "step 20000 " in shown(pilot))


async def test_older_text_is_read_before_one_gets_there() -> None:
    node = Node()
    async with opened(node, 3001) as pilot:
        for _ in range(60):
            await pilot.press("pageup")
        await until(pilot, lambda: " step 2" in body(pilot)[0])
        numbers = [int(line.split("t ")[1].split()[0]) for line in body(pilot)
                   if "request" in line] + [
            int(line.split("step ")[1].split()[0]) for line in body(pilot) if "step " in line
        ]  # fmt: skip
        assert sorted({*numbers}) == list(range(min(numbers), max(numbers) + 1))


async def test_a_time_is_gone_to() -> None:
    async with opened(Node(), 3001) as pilot:
        await pilot.press("T", *"10:00", "enter")
        await until(pilot, lambda: any("10:00.000" in line for line in body(pilot)))
        current = screen(pilot).page.current
        assert current is not None
        assert current.first.t == 600.0
        await pilot.press("T", *"soon", "enter")
        await until(pilot, lambda: "'soon' is no time" in shown(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: "is no time" not in shown(pilot))


async def test_long_lines_scroll_sideways_or_wrap_or_open() -> None:
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
        await until(pilot, lambda: "END of it" in body(pilot)[1])
        await pilot.press("w", "enter")
        await until(pilot, lambda: "END of it" in body(pilot)[1])
        await pilot.press("enter")
        await until(pilot, lambda: "END of it" not in shown(pilot))


async def test_equal_lines_fold_and_lanes_stand_side_by_side() -> None:
    async with opened(Node()) as pilot:
        await pilot.press("equals_sign")
        await until(pilot, lambda: "×2" in shown(pilot) and "step 19" in shown(pilot))
        await pilot.press("l")
        await until(pilot, lambda: "×2" not in shown(pilot))
        assert any(" 1 decode" in line[40:] for line in body(pilot))
        await pilot.press("l")
        await until(pilot, lambda: not any(" 1 decode" in line[40:] for line in body(pilot)))


async def test_lanes_that_are_too_narrow_are_refused() -> None:
    async with opened(Node(), size=(80, 24)) as pilot:
        screen(pilot).feed.rows.world = 8
        await pilot.press("l")
        await until(pilot, lambda: "8 lanes need 80 columns" in shown(pilot))


async def test_times_are_counted_from_what_one_likes() -> None:
    node = Node()
    node.crash_t = 15.0
    async with opened(node) as pilot:
        await pilot.press("t")
        of_day = re.compile(r"^ \d\d:\d\d:\d9\.500 +0")
        await until(pilot, lambda: bool(of_day.match(body(pilot)[-2])))
        await pilot.press("t")
        await until(pilot, lambda: "+00:04.500" in shown(pilot))
        await pilot.press("t")
        await until(pilot, lambda: " 00:19.500" in shown(pilot))


async def test_only_lines_on_screen_are_rendered() -> None:
    async with opened(Node(), lines=2001) as pilot:
        view = pilot.app.screen.query_one(LogView)
        assert len(view.page.rows.visible) > 300
        assert len(view._strips) < 200


async def test_a_line_painted_for_a_narrower_page_is_painted_anew() -> None:
    """Textual may ask for lines of a terminal that has grown before it says so."""
    async with opened(Node()) as pilot:
        view = pilot.app.screen.query_one(LogView)
        view.page.width = 8
        assert "running" not in view.render_line(0).text
        view.update()
        assert "running" in view.render_line(0).text


async def test_sources_that_did_not_grow_are_not_asked_for() -> None:
    node = Node()
    async with opened(node) as pilot:
        size = len(node.texts["rank-1"])
        node.asked.clear()
        node.say(with_sizes(serving(), node.write(41, "rank-1")))
        await until(pilot, lambda: "step 40" in shown(pilot))
        node.say(with_sizes(serving(), node.write(41, "rank-1")))
        await pilot.pause()
        assert node.asked == [{"rank-1": size}]


async def test_a_storm_is_followed_by_its_tail_but_never_moves_one_who_looks_back() -> None:
    node = Node()
    async with opened(node) as pilot:
        await pilot.press("up")
        await until(pilot, lambda: "+0 new" in shown(pilot))
        before = body(pilot)
        grow(node, 3001)
        assert isinstance(pilot.app, Panel)
        desk, size = pilot.app.desk, len(node.texts["rank-0"])
        await until(pilot, lambda: log_size(desk.view) == size)
        assert body(pilot) == before
        await until(pilot, lambda: "K new" in shown(pilot))
        await pilot.press("f")
        grow(node, 3002)
        await until(pilot, lambda: "step 3001" in shown(pilot))
        assert len(screen(pilot).feed.model.records) < 3000


async def test_the_log_of_the_launch_before() -> None:
    node = Node()
    node.records = [
        LaunchRecord(id=number, uuid=f"u{number}", request=Request(profile="tiny"),
                     engine="builtin", version="0.1.0", state=LaunchState.STOPPED, t0_unix=1.0)
        for number in (17, 15)
    ]  # fmt: skip
    async with opened(node) as pilot:
        await pilot.press("p")
        await until(pilot, lambda: "#15" in shown(pilot) and "step 39" in shown(pilot))
        grow(node, 60)
        await pilot.pause()
        assert "step 59" not in shown(pilot)
        await pilot.press("p")
        await until(pilot, lambda: "no launch is known before #15" in shown(pilot))
        await pilot.press("P")
        await until(pilot, lambda: "#17" in shown(pilot) and "step 59" in shown(pilot))
        assert {launch for launch, _, _ in node.searched} == {15, 17}


async def test_trouble_with_a_log_is_a_line_and_the_rest_stays() -> None:
    node = Node()
    async with opened(node) as pilot:
        node.troubles["rank-1"] = "no permission to read rank-1.log (sudo chmod +r rank-1.log)"
        grow(node, 45)
        await until(pilot, lambda: "! no permission" in shown(pilot) and "step 44" in shown(pilot))
        del node.troubles["rank-1"]
        grow(node, 50)
        await until(pilot, lambda: "no permission" not in shown(pilot))
        sizes = node.write(55, "rank-0")
        del sizes["rank-1"]
        node.say(with_sizes(serving(), sizes))
        await until(pilot, lambda: "rank-1 has lost its log" in shown(pilot))
        node.texts["rank-1"] = "another log\n"
        node.files["rank-1"] = 2
        node.say(with_sizes(serving(), {**sizes, "rank-1": 12}))
        await until(pilot, lambda: "is another one than before" in shown(pilot))
        texts = [r.text for r in screen(pilot).feed.model.records if r.source == "rank-1"]
        assert texts == ["another log"]


async def test_without_a_supervisor_what_was_read_stays() -> None:
    node = Node()
    async with opened(node) as pilot:
        node.say(Lost("Connection refused"))
        await until(pilot, lambda: "no supervisor answers" in shown(pilot))
        assert "step 39" in shown(pilot)


async def test_a_new_launch_begins_with_nothing() -> None:
    node = Node()
    async with opened(node) as pilot:
        await pilot.press("up", "m")
        node.texts = {"rank-0": "fresh\n"}
        node.say(with_sizes(snapshot(launch(id=18, uuid="u18")), {"rank-0": 6}))
        await until(pilot, lambda: "fresh" in shown(pilot))
        assert "step 39" not in shown(pilot)
        assert "follow" in shown(pilot)
        assert screen(pilot).look.marks == set()
