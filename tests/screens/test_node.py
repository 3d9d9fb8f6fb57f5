"""What the node screen does: ask, send, follow, say that something is the past."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import msgspec
from textual.pilot import Pilot

from panel.client import Lost
from panel.domain.errors import RefusedError
from panel.domain.snapshot import PROTOCOL, KeptWeights
from panel.domain.states import LaunchState, ProcessState
from panel.domain.wire import Down, Relaunch
from panel.screens.panel import Panel
from panel.screens.view import View
from tests.screens.stage import (
    Engine,
    Node,
    crashed,
    launch,
    launching,
    panel,
    process,
    ranks,
    serving,
    shown,
    snapshot,
    until,
    with_sizes,
)


@asynccontextmanager
async def opened(node: Node) -> AsyncIterator[Pilot[None]]:
    async with panel(node, engine=Engine).run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: "gpu-a" in shown(pilot))
        yield pilot


async def test_one_key_launches_on_a_fresh_machine() -> None:
    node = Node(snapshot(None))
    async with opened(node) as pilot:
        await until(pilot, lambda: "press r to launch tiny" in shown(pilot))
        await pilot.press("r")
        await until(pilot, lambda: Relaunch() in node.requests)


async def test_relaunch_of_a_running_engine_asks_once() -> None:
    node = Node(serving())
    async with opened(node) as pilot:
        await pilot.press("r")
        await until(pilot, lambda: "stop and relaunch #17 while 4 requests" in shown(pilot))
        assert node.requests == []
        await pilot.press("z", "escape")
        await until(pilot, lambda: "stop and relaunch" not in shown(pilot))
        assert node.requests == []
        await pilot.press("r", "r")
        await until(pilot, lambda: node.requests == [Relaunch()])


async def test_stop_and_its_harder_form() -> None:
    node = Node(serving())
    async with opened(node) as pilot:
        await pilot.press("x", "x")
        await until(pilot, lambda: node.requests == [Down()])
        await pilot.press("X", "X")
        await until(pilot, lambda: node.requests[1:] == [Down(now=True)])


async def test_a_refusal_is_told_with_the_way_out() -> None:
    node = Node(crashed())
    node.refuses = RefusedError("port 30000 is [taken]", "set another with c")
    async with opened(node) as pilot:
        await pilot.press("r")
        await until(pilot, lambda: "its drill too; c takes that out?" in shown(pilot))
        await pilot.press("r")
        await until(pilot, lambda: "port 30000 is [taken]" in shown(pilot))


async def test_nothing_is_sent_while_no_supervisor_answers() -> None:
    node = Node(snapshot(launch(LaunchState.STOPPED)))
    async with opened(node) as pilot:
        node.say(Lost("Connection refused"))
        await until(pilot, lambda: "no supervisor answers" in shown(pilot))
        await pilot.press("r")
        await until(pilot, lambda: "the panel keeps trying" in shown(pilot))
        assert node.requests == []
        node.say(snapshot(launch(LaunchState.STOPPED), seq=1))
        await until(pilot, lambda: "stopped after" in shown(pilot))


async def test_the_engine_goes_on_only_where_its_processes_do() -> None:
    node = Node(serving())
    async with opened(node) as pilot:
        desk = cast(Panel, pilot.app).desk
        desk.exists = lambda pid: pid == 41203
        node.say(Lost("Connection refused"))
        await until(pilot, lambda: "the engine goes on" in shown(pilot))
        assert "#17 was serving when it answered last, " in shown(pilot)
        desk.exists = lambda pid: False
        node.say(Lost("Connection refused"))
        await until(pilot, lambda: "the engine goes on" not in shown(pilot))
        desk.exists = lambda pid: True
        node.say(snapshot(launch(LaunchState.STOPPED)))
        node.say(Lost("it ended the connection"))
        await until(pilot, lambda: "#17 was stopped" in shown(pilot))
        assert "q, then moepanel, starts one" in shown(pilot)
        assert "the engine goes on" not in shown(pilot)


async def test_a_question_goes_with_the_launch_that_it_was_about() -> None:
    for other in (launch(id=18, uuid="u18"), launch(LaunchState.STOPPED, id=18, uuid="u18")):
        node = Node(serving())
        async with opened(node) as pilot:
            await pilot.press("r")
            await until(pilot, lambda: "stop and relaunch #17" in shown(pilot))
            node.say(snapshot(other))
            await until(pilot, lambda: "stop and relaunch" not in shown(pilot))
            assert "what was asked about has changed" in shown(pilot)
            assert node.requests == []


async def test_an_answer_is_not_taken_for_a_launch_that_has_not_been_painted_yet() -> None:
    node = Node(serving())
    async with opened(node) as pilot:
        await pilot.press("x")
        await until(pilot, lambda: "stop #17" in shown(pilot))
        desk = cast(Panel, pilot.app).desk
        desk.view = View(snapshot(launch(id=18, uuid="u18")))
        await pilot.press("x")
        await until(pilot, lambda: "has changed" in shown(pilot))
        assert node.requests == []


async def test_another_protocol_is_only_read() -> None:
    node = Node(msgspec.structs.replace(crashed(), protocol=PROTOCOL + 1))
    async with opened(node) as pilot:
        await pilot.press("r")
        await until(pilot, lambda: "of version 0.1.0" in shown(pilot))
        assert node.requests == []


async def test_states_of_one_rank_look_different_without_colour() -> None:
    rows = list(ranks())
    rows[1] = process(1, ProcessState.STALE, beat_age=12.4)
    rows[2] = process(2, ProcessState.FAILED)
    rows[3] = process(3, ProcessState.BUSY, phase="weights", done=1, total=2)
    async with opened(Node(serving(processes=tuple(rows)))) as pilot:
        lines = shown(pilot).splitlines()
        signs = [next(line for line in lines if f"  {r}  " in line[:8])[1] for r in range(4)]
        assert signs == ["●", "?", "✖", "◐"]
        assert "12.4s" in shown(pilot)
        assert "weights 50%" in shown(pilot)


async def test_ranks_that_do_not_exist_yet_have_their_rows() -> None:
    async with opened(Node(snapshot(launch(LaunchState.LAUNCHING, processes=())))) as pilot:
        assert shown(pilot).count("not started") == 8


async def test_the_tail_follows_and_digits_pick_ranks() -> None:
    node = Node()
    node.say(with_sizes(serving(), node.write(30, "rank-0", "rank-1", "rank-2")))
    async with opened(node) as pilot:
        await until(pilot, lambda: "decode step 28" in shown(pilot))
        node.say(with_sizes(serving(), node.write(40, "rank-0", "rank-1", "rank-2")))
        await until(pilot, lambda: "decode step 38" in shown(pilot))
        await pilot.press("1")
        await until(pilot, lambda: "log rank 1" in shown(pilot))
        tail = shown(pilot).splitlines()[12:23]
        assert {tuple(line[10:22].split()) for line in tail} == {("×1", "1")}
        await pilot.press("a")
        await until(pilot, lambda: "log all ranks" in shown(pilot))


async def test_a_crash_turns_to_the_log_of_the_rank_to_blame() -> None:
    node = Node(launching())
    async with opened(node) as pilot:
        await until(pilot, lambda: "launching 4.2s of about 6.1s" in shown(pilot))
        node.say(with_sizes(crashed(), node.write(20, "rank-2", "rank-3")))
        await until(pilot, lambda: "log rank 3" in shown(pilot))
        await pilot.press("a")
        await until(pilot, lambda: "log all ranks" in shown(pilot))
        node.say(with_sizes(crashed(), node.write(21, "rank-2", "rank-3")))
        await until(pilot, lambda: "step 20" in shown(pilot))
        assert "log all ranks" in shown(pilot)


async def test_only_rows_that_differ_are_painted_again() -> None:
    node = Node(serving())
    async with opened(node) as pilot:
        table = pilot.app.screen.query_one("#ranks")
        painted: list[object] = []
        table.refresh = lambda *regions, **more: painted.extend(regions)  # type: ignore[assignment,method-assign]
        rows = list(ranks())
        node.say(serving(processes=tuple(rows)))
        rows[5] = process(5, ProcessState.SERVING, cpu=99.0)
        node.say(serving(processes=tuple(rows)))
        await until(pilot, lambda: bool(painted))
        assert [region.y for region in painted] == [6]  # type: ignore[attr-defined]


async def test_words_that_pile_up_are_painted_once() -> None:
    node = Node(serving())
    async with opened(node) as pilot:
        assert isinstance(pilot.app, Panel)
        seen: list[float] = []
        show = pilot.app.screen.show
        pilot.app.screen.show = lambda view: (seen.append(view.launch.t), show(view))  # type: ignore[method-assign]
        for second in range(50):
            node.say(serving(t=float(second)))
        await until(pilot, lambda: 49.0 in seen)
        assert len(seen) < 50


async def test_leaving_sends_nothing() -> None:
    node = Node(serving())
    app = panel(node, engine=Engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: "tok/s" in shown(pilot))
        await pilot.press("q")
        await until(pilot, lambda: app.return_code == 0)
    assert node.closed
    assert node.requests == []


async def test_kept_weights_have_a_size_and_an_owner() -> None:
    kept = KeptWeights(pid=4711, bytes=33 << 30, ranks=8, whole=8)
    node = Node(msgspec.structs.replace(crashed(), kept=kept))
    async with opened(node) as pilot:
        words = "weights kept: 33.0G by pid 4711, for the next launch"
        await until(pilot, lambda: words in shown(pilot))
        await pilot.press("x")
        await until(pilot, lambda: "let go of the kept weights (33.0G)?" in shown(pilot))
        await pilot.press("x")
        await until(pilot, lambda: node.requests == [Down()])


async def test_ascii_is_all_that_an_ascii_terminal_gets() -> None:
    node = Node(serving())
    app = panel(node, engine=Engine, ascii_signs=True)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: "gpu-a" in shown(pilot))
        assert "graphs<=16" in shown(pilot)
        for keys in (("question_mark",), ("escape", "c"), ("p",), ("escape", "R")):
            await pilot.press(*keys)
            await pilot.pause()
            assert shown(pilot).isascii(), shown(pilot)
        await until(pilot, lambda: "refuses nothing" in shown(pilot))
        assert shown(pilot).isascii(), shown(pilot)
        await pilot.press("escape", "ctrl+p")
        await until(pilot, lambda: "The keys of this screen" in shown(pilot))
        assert shown(pilot).isascii(), shown(pilot)
