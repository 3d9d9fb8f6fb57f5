"""What each screen looks like in its key states, at the three sizes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from textual.pilot import Pilot

from panel.client import Lost
from panel.domain.flags import Request
from panel.domain.plan import Problem
from panel.domain.snapshot import Snapshot
from panel.domain.states import LaunchState
from panel.domain.wire import LaunchRecord
from panel.screens.panel import Panel
from tests.screens.probe_stage import SICK, charted, hanging, on_gpus, stacks
from tests.screens.stage import (
    SIZES,
    Engine,
    Node,
    crashed,
    hung,
    launching,
    panel,
    serving,
    shown,
    snapshot,
    triaged,
    until,
    with_sizes,
)

Compare = Callable[..., bool]
Look = Callable[[Compare, Node, Callable[[Pilot[None]], Awaitable[None]]], None]
NOW = 1_796_000_004.41
RANKS = tuple(f"rank-{rank}" for rank in range(8))


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def look(request: pytest.FixtureRequest, snap_compare: Compare, monkeypatch: Any) -> Any:
    """Return a function that compares the app, after some steps, with its picture."""
    monkeypatch.delenv("TEXTUAL_THEME", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)

    def compare(node: Node, steps: Callable[[Pilot[None]], Awaitable[None]], **more: Any) -> None:
        app = panel(node, engine=Engine, clock=lambda: NOW, **more)
        assert snap_compare(app, terminal_size=request.param, run_before=steps)

    return compare


def sees(*texts: str) -> Callable[[Pilot[None]], Awaitable[None]]:
    """Return a step that waits for texts on the screen."""

    async def steps(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: all(text in shown(pilot) for text in texts), str(texts))

    return steps


def sees_charts(*texts: str) -> Callable[[Pilot[None]], Awaitable[None]]:
    """Return a step that waits for texts, and for charts where the screen has room for them."""

    async def steps(pilot: Pilot[None]) -> None:
        charts = ("last 10 minutes",) if pilot.app.size.height >= 36 else ()
        await sees(*texts, *charts)(pilot)

    return steps


def logged(of: Any, node: Node, lines: int = 60) -> Node:
    node.say(with_sizes(of, node.write(lines, *RANKS, "frontend")))
    return node


def test_node_before_the_first_launch(look: Any) -> None:
    look(Node(snapshot(None)), sees("press r to launch tiny"))


def test_node_without_the_engine(look: Any) -> None:
    node = Node(snapshot(None))
    text = "the engine is not installed (torch missing): pip install 'moepanel[engine]'"
    node.problems = (Problem(severity="refusal", text=text),)
    look(node, sees("not installed"))


def test_node_launching(look: Any) -> None:
    look(logged(launching(), Node(), 12), sees("capture 3/6 bs 8", "decode step 11"))


def test_node_serving(look: Any) -> None:
    look(logged(serving(), Node()), sees("412 tok/s", "decode step 58"))


def test_node_serving_in_ascii(look: Any) -> None:
    look(logged(serving(), Node()), sees("412 tok/s", "decode step 58"), ascii_signs=True)


def test_node_crashed(look: Any) -> None:
    node = Node()
    node.texts["rank-3"] = (
        "[2026-11-30 12:00:04.000 TP3 capture] INFO capturing batch 8\n"
        "Traceback (most recent call last):\n"
        '  File "graphs.py", line 49, in capture\n'
        "    assert expert_location_metadata is not None\n"
        "AssertionError: expert_location_metadata is not None\n"
    )
    node.say(with_sizes(crashed(), {"rank-3": len(node.texts["rank-3"])}))
    look(node, sees("failed first", "AssertionError: expert"))


def test_node_without_a_supervisor(look: Any) -> None:
    node = logged(serving(), Node())

    async def steps(pilot: Pilot[None]) -> None:
        await sees("decode step 58")(pilot)
        cast(Panel, pilot.app).desk.exists = lambda pid: True
        node.say(Lost("Connection refused"))
        await sees("no supervisor answers")(pilot)

    look(node, steps)


def test_stop_asks(look: Any) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees("decode step 58")(pilot)
        await pilot.press("x")
        await sees("stop #17")(pilot)

    look(logged(serving(), Node()), steps)


def test_logs_following(look: Any) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees("tok/s")(pilot)
        await pilot.press("l")
        await sees("✖ 18", "decode step 59", "follow")(pilot)

    look(logged(serving(t=40.0), Node()), steps)


def test_logs_searched(look: Any) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees("tok/s")(pilot)
        await pilot.press("l")
        await sees("✖ 18")(pilot)
        await pilot.press("slash", *"took", "enter")
        await sees("54/54")(pilot)
        await pilot.press("N")
        await sees("53/54")(pilot)
        await pilot.press("N")
        await sees("52/54")(pilot)

    look(logged(serving(t=40.0), Node()), steps)


def test_logs_filtered_and_folded(look: Any) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees("tok/s")(pilot)
        await pilot.press("l")
        await sees("✖ 17")(pilot)
        await pilot.press("equals_sign", "ampersand", *"took|refused", "enter")
        await sees("&took|refused 72 lines", "×8", "×7")(pilot)
        await pilot.press("up", "m", "up")
        await sees("+0 new")(pilot)

    node = logged(serving(t=40.0), Node())
    node.texts["rank-5"] = node.texts["rank-5"].replace("request 49", "nothing 49", 1)
    node.texts["rank-5"] = node.texts["rank-5"].replace("ERROR nothing", "INFO all but", 1)
    look(node, steps)


def test_logs_of_a_crash_in_lanes(look: Any) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees("failed first")(pilot)
        await pilot.press("l")
        await sees("1 more, Enter")(pilot)
        await pilot.press("1", "3", "l", "t", "t")
        await sees("+00:00.000", "✖ 2")(pilot)
        await pilot.press("E")
        await sees("+0 new")(pilot)

    node = triaged()
    node.crash_t = 4.1
    look(node, steps)


def test_logs_in_trouble(look: Any) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees("tok/s")(pilot)
        await pilot.press("l")
        await sees("! no permission")(pilot)
        await pilot.press("slash", *"(a", "enter")
        await sees("is no regular expression")(pilot)

    node = logged(serving(t=40.0), Node())
    node.troubles["rank-1"] = "no permission to read rank-1.log (sudo chmod +r rank-1.log)"
    look(node, steps)


def test_next_launch_changed(look: Any) -> None:
    node = Node(serving())
    node.problems = (
        Problem(severity="warning", text="batch sizes 32 are above max-running-requests 16 and "
                "will not be captured", remedy={"max-running-requests": "32"}),
    )  # fmt: skip

    async def steps(pilot: Pilot[None]) -> None:
        await sees("tok/s")(pilot)
        await pilot.press("c")
        await sees("can be launched")(pilot)
        await pilot.press("s")
        await until(pilot, lambda: "ngram:4" in shown(pilot))
        await pilot.press("g", *("backspace",) * 9, *"32", "enter")
        await sees("graphs≤32")(pilot)

    look(node, steps)


def test_next_launch_refused(look: Any) -> None:
    node = Node(serving(chips=("tp8", "graphs≤16")))
    node.problems = (
        Problem(severity="refusal", text="ep-size 3 does not divide the 16 experts: take 2, 4 or 8",
                flag="ep-size", remedy={"ep-size": "8"}),
    )  # fmt: skip

    async def steps(pilot: Pilot[None]) -> None:
        await sees("tok/s")(pilot)
        await pilot.press("c")
        await sees("cannot work")(pilot)
        await pilot.press("down", "down", "down", "down", "down")

    look(node, steps)


def test_next_launch_edits_a_bad_value(look: Any) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees("tok/s")(pilot)
        await pilot.press("c")
        await sees("can be launched", "0.85")(pilot)
        await pilot.press("m", *"x", "enter")
        await sees("is not a number")(pilot)

    look(Node(serving()), steps)


def test_all_flags(look: Any) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees("tok/s")(pilot)
        await pilot.press("c")
        await sees("can be launched", "all flags (4)")(pilot)
        await pilot.press("slash", *"seed")
        await sees("Seed of sampling")(pilot)

    look(Node(serving()), steps)


def test_chat_empty(look: Any) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees("tok/s")(pilot)
        await pilot.press("k")
        await sees("Enter sends it")(pilot)

    look(Node(serving()), steps)


def test_chat_without_an_engine(look: Any) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees("failed first")(pilot)
        await pilot.press("k")
        await sees("no engine is serving")(pilot)

    look(Node(crashed()), steps)


def test_help(look: Any) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees("tok/s")(pilot)
        await pilot.press("question_mark")
        await sees("everywhere")(pilot)

    look(Node(serving()), steps)


def test_triage(look: Any) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees("failed first")(pilot)
        await pilot.press("t")
        await sees("since #14")(pilot)

    look(triaged(), steps)


def test_triage_unfolded(look: Any) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees("failed first")(pilot)
        await pilot.press("t")
        await sees("Enter unfolds")(pilot)
        await pilot.press("enter", "tab")
        await sees("all 2 frames")(pilot)
        await pilot.press("pagedown")
        await sees("looks like")(pilot)

    look(triaged(), steps)


def test_triage_of_a_hang(look: Any) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees("has not stepped")(pilot)
        await pilot.press("t")
        await sees("no heartbeat for 24.0s")(pilot)

    look(Node(hung()), steps)


def test_triage_without_a_failure(look: Any) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees("tok/s")(pilot)
        await pilot.press("t")
        await sees("nothing has failed")(pilot)

    look(Node(serving()), steps)


def records() -> list[LaunchRecord]:
    """Return four launches, the newest first, one of which failed."""
    flags = {"model-path": "moe-tiny", "tp-size": "8"}
    rows: list[tuple[int, LaunchState, dict[str, str], float | None, float | None, str]] = [
        (17, LaunchState.SERVING, flags | {"ep-size": "8"}, 5.2, 431.0, ""),
        (16, LaunchState.CRASHED, flags | {"fault": "rank=3,phase=capture,kind=assert"}, None, None,
         "rank 3 failed first: AssertionError in graph capture"),
        (15, LaunchState.STOPPED, flags, 4.9, 412.0, "stopped by the operator"),
        (14, LaunchState.REFUSED, flags | {"port": "80"}, None, None, "port 80: permission denied"),
    ]  # fmt: skip
    return [
        LaunchRecord(
            id=number, uuid=f"u{number}", request=Request(profile="tiny"), engine="builtin",
            version="0.1.0", state=state, t0_unix=1_796_000_000.0 + number, ready_s=ready,
            flags=one, outcome=outcome, tok_s=speed, phases={"import": 2.1, "weights": 0.6},
            versions={"torch": "2.13.0"},
        )
        for number, state, one, ready, speed, outcome in rows
    ]  # fmt: skip


def test_history(look: Any) -> None:
    node = Node(serving())
    node.records = records()

    async def steps(pilot: Pilot[None]) -> None:
        await sees("tok/s")(pilot)
        await pilot.press("h")
        await sees("permission denied")(pilot)
        await pilot.press("down")

    look(node, steps)


def test_history_of_one_launch(look: Any) -> None:
    node = Node(serving())
    node.records = records()

    async def steps(pilot: Pilot[None]) -> None:
        await sees("tok/s")(pilot)
        await pilot.press("h")
        await sees("permission denied")(pilot)
        await pilot.press("down", "enter")
        await sees("against #15")(pilot)

    look(node, steps)


def test_node_on_gpus(look: Any) -> None:
    look(charted(on_gpus()), sees_charts("412 tok/s", "131/140G"))


def test_node_on_sick_gpus(look: Any) -> None:
    look(charted(on_gpus(SICK)), sees_charts("412 tok/s", "GPU 6, rank 6: Xid 79"))


def test_node_with_charts_in_ascii(look: Any) -> None:
    look(charted(serving()), sees_charts("412 tok/s"), ascii_signs=True)


def test_node_suspects_a_hang(look: Any) -> None:
    look(hanging(), sees("d diagnoses"))


@pytest.mark.parametrize("of", [on_gpus(), on_gpus(SICK), serving()], ids=["fine", "sick", "none"])
def test_gpus(look: Any, of: Snapshot) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees("tok/s")(pilot)
        await pilot.press("g")
        await sees("316" if of.gpus else "no GPU:", "rank")(pilot)

    look(charted(of), steps)


def test_stacks(look: Any) -> None:
    node = Node(serving())
    node.stacked = stacks()

    async def steps(pilot: Pilot[None]) -> None:
        await sees("tok/s")(pilot)
        await pilot.press("s")
        await sees("stopped by a signal")(pilot)

    look(node, steps)


def test_hang(look: Any) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees("d diagnoses")(pilot)
        await pilot.press("d")
        await sees("rank 5 never entered")(pilot)

    look(hanging(), steps)
