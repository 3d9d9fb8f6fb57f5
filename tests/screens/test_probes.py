"""What the GPU, stacks and hang screens do, and what the node screen says of the same."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from textual.pilot import Pilot

from panel.client import Lost
from panel.domain.errors import UsageError
from panel.domain.snapshot import Snapshot
from panel.domain.states import LaunchState
from tests.screens.probe_stage import (
    SICK,
    SUSPICION,
    charted,
    gpus,
    hanging,
    on_gpus,
    stacks,
    suspected,
)
from tests.screens.stage import (
    Engine,
    Node,
    crashed,
    launch,
    panel,
    serving,
    shown,
    snapshot,
    until,
)


@asynccontextmanager
async def opened(
    node: Node, *keys: str, size: tuple[int, int] = (80, 24), **more: Any
) -> AsyncIterator[Pilot[None]]:
    async with panel(node, engine=Engine, **more).run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: "gpu-a" in shown(pilot))
        await pilot.press(*keys)
        yield pilot


async def sees(pilot: Pilot[None], *texts: str) -> str:
    await until(pilot, lambda: all(text in shown(pilot) for text in texts), str(texts))
    return shown(pilot)


def rank_row(screen: str, rank: int) -> str:
    """Return the row of a rank in the table of the node screen."""
    return next(line for line in screen.splitlines() if line[2:7].strip() == str(rank))


async def test_the_node_shows_the_gpu_of_each_rank() -> None:
    async with opened(Node(on_gpus())) as pilot:
        screen = await sees(pilot, "pcie rx/tx")
        assert rank_row(screen, 3).split()[:9] == [
            "●", "3", "serving", "3", "131/140G", "100%", "689", "1.2/0.8", "5x16",
        ]  # fmt: skip


async def test_a_sick_gpu_marks_its_rank_and_says_why() -> None:
    async with opened(Node(on_gpus(SICK))) as pilot:
        screen = await sees(pilot, "link too narrow")
        signs = {rank: rank_row(screen, rank)[1] for rank in range(8)}
        assert signs == {0: "●", 1: "●", 2: "●", 3: "!", 4: "!", 5: "!", 6: "!", 7: "?"}
        assert rank_row(screen, 5).endswith("slowed by heat")
        assert "Xid 79: the GPU has fallen off the bus: reboot" in screen
        assert "4 more GPUs: g" in screen


async def test_a_wide_screen_has_the_alarm_in_full() -> None:
    async with opened(Node(on_gpus(SICK)), size=(120, 40)) as pilot:
        await sees(pilot, "PCIe link is x8, should be x16", "figures are 12.0s old")


async def test_a_state_of_the_rank_is_shown_before_an_alarm() -> None:
    stale = suspected()
    sick = msgspec.structs.replace(stale, gpus=gpus(SICK))
    async with opened(Node(sick)) as pilot:
        screen = await sees(pilot, "pcie rx/tx")
        assert rank_row(screen, 3)[1] == "?"


async def test_without_gpus_the_table_has_cpu_and_says_why() -> None:
    of = serving()
    host = msgspec.structs.replace(of.host, gpu_note="no NVIDIA driver")
    without = msgspec.structs.replace(of, host=host)
    async with opened(Node(without)) as pilot:
        screen = await sees(pilot, "cpu", "rss", "last line")
        assert re.search(r"last line +no GPU$", screen, re.MULTILINE), "short where it is narrow"
    async with opened(Node(without), size=(120, 40)) as pilot:
        await sees(pilot, "no NVIDIA driver")


async def test_ranks_on_the_cpu_of_a_node_with_gpus() -> None:
    of = on_gpus()
    assert of.launch is not None
    flags = of.launch.flags | {"device": "cpu"}
    cpu = msgspec.structs.replace(of, launch=msgspec.structs.replace(of.launch, flags=flags))
    async with opened(Node(cpu)) as pilot:
        await sees(pilot, "rss", "on CPU")
    async with opened(Node(cpu), size=(120, 40)) as pilot:
        await sees(pilot, "ranks on the CPU")


async def test_the_gpu_screen_names_what_is_wrong_and_what_to_do() -> None:
    node = charted(on_gpus(SICK))
    async with opened(node, "g", size=(120, 40)) as pilot:
        screen = await sees(pilot, "316")
        for text in (
            "GPU 6, rank 6: the GPU has fallen off the bus; shown are the last figures",
            "Xid 79: the GPU has fallen off the bus",
            "check slot, riser and BIOS bifurcation",
            "212 PCIe packets were sent again since the launch",
            "clocks held down by heat for 88 s of 751 s",
            "power limit for 120 s of 751 s; likewise GPU 2",
            "rank 3 is slow: it has a PCIe link of 5x8, others 5x16",
        ):
            assert text in screen


async def test_eight_gpus_fit_80x24() -> None:
    async with opened(charted(on_gpus()), "g") as pilot:
        screen = await sees(pilot, "no rank is slower")
        rows = [line for line in screen.splitlines() if "/700" in line]
        assert len(rows) == 8
        assert all(len(row) < 80 for row in rows)


async def test_a_gpu_that_no_rank_uses_and_one_that_gives_no_figures() -> None:
    of = on_gpus({7: {"rank": None}})
    note = "GPU 8: the GPU has fallen off the bus"
    host = msgspec.structs.replace(of.host, gpu_note=note)
    async with opened(Node(msgspec.structs.replace(of, host=host)), "g") as pilot:
        screen = await sees(pilot, note)
        assert rank_row(screen, 7).split()[:3] == ["●", "7", "-"]


@pytest.mark.parametrize("of", [serving(), snapshot(None)], ids=["serving", "empty"])
async def test_the_gpu_screen_of_a_node_without_gpus(of: Snapshot) -> None:
    async with opened(Node(of), "g") as pilot:
        text = "threads" if of.launch else "no ranks run"
        await sees(pilot, "no GPU: no GPU figures: no NVIDIA driver answers", text)


async def test_what_was_last_seen_of_gpus_stays_while_no_supervisor_answers() -> None:
    node = Node(on_gpus())
    async with opened(node, "g") as pilot:
        await sees(pilot, "131/140G")
        node.say(Lost("Connection refused"))
        await sees(pilot, "no supervisor answers", "131/140G")


async def test_charts_only_where_there_is_room() -> None:
    node = charted(serving())
    async with opened(node, size=(120, 40)) as pilot:
        screen = await sees(pilot, "last 10 minutes")
        assert "p50 114 p95 182 p99 307" in screen
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "last 10 minutes" not in shown(pilot))


async def test_charts_in_ascii() -> None:
    async with opened(charted(serving()), size=(120, 40), ascii_signs=True) as pilot:
        assert (await sees(pilot, "last 10 minutes", "***")).replace("≤", "").isascii()


async def test_stacks_are_taken_shown_and_kept() -> None:
    node = Node(serving())
    node.stacked = stacks()
    async with opened(node, "s") as pilot:
        screen = await sees(pilot, "kept: stacks/000752.100-asked.json", "permission denied")
        assert screen.index("rank 5 (stopped by a signal)") < screen.index("ranks 0, 1, 2")
        assert "layer_8" not in screen
        await pilot.press("enter")
        await sees(pilot, "layer_8")
        await pilot.press("a")
        await sees(pilot, "rank-5, heartbeat")
        await pilot.press("n")
        await sees(pilot, "native")
        assert node.requests == [("stacks", False), ("stacks", True)]


async def test_stacks_that_cannot_be_taken() -> None:
    node = Node(serving())
    node.refuses = UsageError("no right to trace", "sysctl kernel.yama.ptrace_scope=0")
    async with opened(node, "s") as pilot:
        await sees(pilot, "no right to trace", "sysctl kernel.yama")


@pytest.mark.parametrize(
    ("of", "text"),
    [(crashed(), "stacks of the last one are in /state"), (snapshot(None), "nothing was launched")],
)
async def test_stacks_of_what_does_not_run(of: Snapshot, text: str) -> None:
    node = Node(of)
    async with opened(node, "s") as pilot:
        await sees(pilot, text)
        assert ("stacks", False) not in node.requests


async def test_the_node_tells_a_suspicion_and_what_to_press() -> None:
    async with opened(hanging()) as pilot:
        screen = await sees(pilot, SUSPICION.text, "since 00:12:07", "d diagnoses")
        assert " d diagnose " in screen.splitlines()[-1]


async def test_some_of_the_ranks_are_named() -> None:
    some = msgspec.structs.replace(SUSPICION, ranks=(2, 5), text="2 of 8 ranks without a beat")
    async with opened(Node(serving(suspicion=some))) as pilot:
        await sees(pilot, "2 of 8 ranks without a beat (2, 5), since")


async def test_the_ladder_shows_results_and_does_steps() -> None:
    node = hanging()
    async with opened(node, "d") as pilot:
        await sees(pilot, "rank 5 never entered", "kept: hang/000740.100-look.json",
                   "not here: the ranks use no GPU", "8 of 8 ranks without a beat")  # fmt: skip
        await pilot.press("enter")
        await until(pilot, lambda: node.requests == ["flight"])
        await pilot.press("0")
        await until(pilot, lambda: node.requests == ["flight", "look"])
        await pilot.press("s")
        await sees(pilot, "rank 5 (stopped by a signal)")


async def test_after_the_last_step_the_gang_is_stopped() -> None:
    node = hanging()
    assert node.ladder is not None
    done = tuple(msgspec.structs.replace(rung, done=True) for rung in node.ladder.rungs)
    node.ladder = msgspec.structs.replace(node.ladder, rungs=done)
    async with opened(node, "d") as pilot:
        await sees(pilot, "then: Esc, and x stops the gang")
        await pilot.press("enter")
        await sees(pilot, "no step is left")
        assert node.requests == []


async def test_a_core_of_the_kernels_is_asked_for_first() -> None:
    node = hanging()
    assert node.ladder is not None
    able = tuple(msgspec.structs.replace(rung, refused="") for rung in node.ladder.rungs)
    node.ladder = msgspec.structs.replace(node.ladder, rungs=able)
    async with opened(node, "d") as pilot:
        await sees(pilot, "freezes that rank for minutes")
        await pilot.press("4")
        await sees(pilot, "write gigabytes?")
        await pilot.press("escape", "4", "4")
        await until(pilot, lambda: node.requests == ["core"])


async def test_a_step_that_is_refused_is_told() -> None:
    node = hanging()
    node.refuses = UsageError("ras is not possible: the ranks use no GPU, so no NCCL")
    async with opened(node, "d") as pilot:
        await sees(pilot, "rank 5 never entered")
        await pilot.press("1")
        await sees(pilot, "ras is not possible")


async def test_the_ladder_follows_what_the_supervisor_does() -> None:
    node = hanging()
    done = node.ladder
    assert done is not None
    node.ladder = msgspec.structs.replace(
        done, rungs=tuple(msgspec.structs.replace(rung, done=False) for rung in done.rungs)
    )
    async with opened(node, "d") as pilot:
        await sees(pilot, "costs nothing, by itself")
        assert "rank 5 never entered" not in shown(pilot)
        node.ladder = done
        of = suspected()
        assert of.launch is not None
        later = msgspec.structs.replace(of.launch, t=of.launch.t + 1.0)
        node.say(msgspec.structs.replace(of, launch=later))
        await sees(pilot, "rank 5 never entered")


async def test_nothing_hangs_where_nothing_runs() -> None:
    node = Node(snapshot(launch(LaunchState.STOPPED)))
    async with opened(node, "d") as pilot:
        await sees(pilot, "nothing runs that could hang")
        await pilot.press("0")
        await pilot.pause()
        assert node.requests == []
