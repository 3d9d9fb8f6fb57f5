"""What the triage screen does: apply, unfold, look into the log, report."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot

from panel.domain.errors import NotFoundError
from panel.domain.wire import Relaunch
from panel.screens.launch import LaunchScreen
from panel.screens.triage import TriageScreen
from panel.widgets.draft import Draft
from tests.screens.stage import (
    Engine,
    Node,
    crashed,
    launching,
    panel,
    serving,
    shown,
    triaged,
    until,
)

NOW = 1_796_000_004.41


@asynccontextmanager
async def opened(node: Node, wanted: str = "since #14") -> AsyncIterator[Pilot[None]]:
    app = panel(node, engine=Engine, clock=lambda: NOW)
    async with app.run_test(size=(80, 50), notifications=True) as pilot:
        await until(pilot, lambda: "gpu-a" in shown(pilot))
        await pilot.press("t")
        await until(pilot, lambda: wanted in shown(pilot))
        yield pilot


async def test_who_failed_first_and_when_stands_beside_the_others() -> None:
    async with opened(triaged()) as pilot:
        screen = shown(pilot)
        assert "0.31 s ago" in screen
        lanes = [line for line in screen.splitlines() if "▁" in line]
        assert [line.split()[0] for line in lanes] == list("01234567")
        assert ["✖" in line for line in lanes] == [rank == 3 for rank in range(8)]
        assert "0.00s" in lanes[3]
        assert "+0.07s  victim  rank 3 (pid 41203) is gone" in lanes[1]
        assert "not available: kernel log" in screen


async def test_apply_shows_the_difference_before_anything_is_launched() -> None:
    node = triaged()
    async with opened(node) as pilot:
        await pilot.press("a")
        await until(pilot, lambda: pilot.app.screen.NAME == "next launch")
        assert isinstance(pilot.app.screen, LaunchScreen)
        assert pilot.app.screen.draft == Draft(set={"ep-size": "1"})
        await until(pilot, lambda: "ep-size" in shown(pilot))
        assert node.requests == [Relaunch(set={"ep-size": "1"})]
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen.NAME == "triage")


async def test_other_advice_is_chosen_by_tab_and_may_take_a_flag_away() -> None:
    async with opened(triaged()) as pilot:
        assert "▸ confirm" in shown(pilot)
        await pilot.press("tab")
        await until(pilot, lambda: "▸ fix" in shown(pilot))
        await pilot.press("a")
        await until(pilot, lambda: pilot.app.screen.NAME == "next launch")
        assert isinstance(pilot.app.screen, LaunchScreen)
        assert pilot.app.screen.draft == Draft(unset=("fault",))


async def test_a_launch_made_of_the_advice_leads_back_to_the_node() -> None:
    node = triaged()
    async with opened(node) as pilot:
        await pilot.press("a")
        await until(pilot, lambda: "can be launched" in shown(pilot))
        await pilot.press("r")
        await until(pilot, lambda: pilot.app.screen.NAME == "node")
        assert node.requests[-1] == Relaunch(set={"ep-size": "1"})


async def test_a_newer_launch_is_mentioned_and_the_verdict_stays() -> None:
    node = triaged()
    async with opened(node) as pilot:
        newer = launching()
        assert newer.launch is not None
        fresh = msgspec.structs.replace(newer.launch, id=18, uuid="u18")
        node.say(msgspec.structs.replace(newer, launch=fresh))
        await until(pilot, lambda: "#18 is launching since" in shown(pilot))
        assert "rank 3 failed first" in shown(pilot)
        await pilot.press("o")
        await until(pilot, lambda: "--launch 17" in shown(pilot))
        assert pilot.app.screen.NAME == "triage"


async def test_the_log_opens_at_the_deciding_line() -> None:
    node = triaged()
    node.texts["rank-3"] += "".join(f"later {number}\n" for number in range(500))
    node.arrivals["rank-3"] += [5.0] * 500
    async with opened(node) as pilot:
        await pilot.press("o")
        await until(pilot, lambda: pilot.app.screen.NAME == "logs")
        await until(pilot, lambda: "AssertionError: expert" in shown(pilot))
        assert "rank 3" in shown(pilot).splitlines()[0]
        assert "later 499" not in shown(pilot)


async def test_the_traceback_unfolds() -> None:
    async with opened(triaged()) as pilot:
        assert "engine/graphs.py:49 capture" in shown(pilot)
        assert "engine/rank.py:77" not in shown(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: "engine/rank.py:77 run_rank" in shown(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: "engine/rank.py:77" not in shown(pilot))


async def test_source_stands_around_the_frame_where_it_is_the_file_that_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "graphs.py"
    source.write_text("\n" * 46 + "before = 1\n\n    assert expert_location_metadata is not None\n")
    node = triaged()
    text = node.texts["rank-3"]
    node.texts["rank-3"] = text.replace("/srv/engine/graphs.py", str(source))
    monkeypatch.setattr("panel.screens.triage_feed.platform.node", lambda: "gpu-a")
    async with opened(node) as pilot:
        assert "47 before = 1" in shown(pilot)


async def test_the_report_is_copied_and_saved_beside_the_evidence(tmp_path: Path) -> None:
    async with opened(triaged(str(tmp_path))) as pilot:
        await pilot.press("y")
        await until(pilot, lambda: "report copied, and saved" in shown(pilot))
        text = (tmp_path / "report.md").read_text()
        assert pilot.app.clipboard == text
        assert (tmp_path / "report.md").stat().st_mode & 0o077 == 0
        assert "AssertionError: expert_location_metadata" in text
        assert "hidden-hidden" not in text


async def test_the_report_is_copied_where_the_evidence_is_on_another_machine() -> None:
    async with opened(triaged("/nowhere/000017")) as pilot:
        await pilot.press("y")
        await until(pilot, lambda: "report copied; it is not in a file here" in shown(pilot))
        assert "# builtin 0.1.0: rank 3" in pilot.app.clipboard


async def test_a_note_is_kept_with_the_evidence_and_goes_into_the_report(tmp_path: Path) -> None:
    node = triaged(str(tmp_path))
    async with opened(node) as pilot:
        await pilot.press("N")
        await until(pilot, lambda: "Enter keeps it" in shown(pilot))
        await pilot.press(*"since the new riser", "enter")
        await until(pilot, lambda: "Enter keeps it" not in shown(pilot))
        assert node.requests[-1] == ("note", "since the new riser")
        assert "── notes" in shown(pilot)
        await pilot.press("y")
        await until(pilot, lambda: "report copied" in shown(pilot))
        assert "## Notes\n\n- since the new riser" in (tmp_path / "report.md").read_text()


async def test_a_note_that_cannot_be_kept_stays_in_the_line() -> None:
    node = triaged()
    async with opened(node) as pilot:
        node.refuses = NotFoundError("launch 17 has no evidence")
        await pilot.press("N", *"riser", "enter")
        await until(pilot, lambda: "has no evidence" in shown(pilot))
        assert "riser" in shown(pilot)
        assert "── notes" not in shown(pilot)


async def test_what_it_may_be_taken_for_is_told_apart() -> None:
    async with opened(triaged()) as pilot:
        assert "▸ assertion: a bare assertion in the dispatch of experts" in shown(pilot)
        assert "capture_illegal_op: CUDA forbids" in shown(pilot)


async def test_the_evidence_folder_is_shown_and_copied() -> None:
    async with opened(triaged()) as pilot:
        await pilot.press("f")
        await until(pilot, lambda: "evidence, copied: /state/launches/000017" in shown(pilot))
        assert pilot.app.clipboard == "/state/launches/000017"


async def test_without_logs_and_ledger_the_verdict_itself_stands() -> None:
    class Mute(Node):
        async def launches(self, limit: int = 50) -> list[object]:  # type: ignore[override]
            raise NotFoundError("no ledger")

        async def logs(self, *asked: object) -> tuple[object, ...]:  # type: ignore[override]
            raise NotFoundError("no logs")

    async with opened(Mute(crashed()), "who and when") as pilot:
        assert "rank 3 failed first" in shown(pilot)
        await pilot.press("o")
        await until(pilot, lambda: "no log speaks for this verdict" in shown(pilot))


async def test_nothing_has_failed() -> None:
    async with opened(Node(serving()), "nothing has failed") as pilot:
        assert isinstance(pilot.app.screen, TriageScreen)
        await pilot.press("a", "y", "enter", "tab", "o")
        await until(pilot, lambda: "no log speaks for this verdict" in shown(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen.NAME == "node")
