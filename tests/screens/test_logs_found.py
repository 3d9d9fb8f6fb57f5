"""The logs screen: what is sought, filtered, marked and kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from panel.client import Lost
from panel.domain.errors import PanelError
from panel.screens.log_searches import Kind
from panel.widgets.log_view import LogView
from panel.widgets.rows import Rows
from tests.screens.stage import (
    TRACE,
    Engine,
    Node,
    crashed,
    panel,
    serving,
    shown,
    snapshot,
    until,
    with_sizes,
)
from tests.screens.test_logs import body, grow, opened, screen


def keys(pilot: Pilot[None]) -> str:
    return pilot.app.screen.query_one("#keys", Rows).text


def current(pilot: Pilot[None]) -> str:
    row = screen(pilot).page.current
    assert row is not None
    return row.text


async def test_search_walks_the_hits_and_escape_forgets_them() -> None:
    async with opened(Node()) as pilot:
        assert "n next" not in keys(pilot)
        await pilot.press("slash", *"took", "enter")
        await until(pilot, lambda: "8/8" in shown(pilot))
        assert "n next" in keys(pilot)
        await pilot.press("N")
        await until(pilot, lambda: "7/8" in shown(pilot))
        await pilot.press("n")
        await until(pilot, lambda: "8/8" in shown(pilot))
        await pilot.press("n")
        await until(pilot, lambda: "1/8" in shown(pilot))
        await pilot.press("slash", "escape")
        await until(pilot, lambda: "/8" not in shown(pilot))
        assert pilot.app.screen.NAME == "logs"


async def test_capitals_make_case_count() -> None:
    async with opened(Node()) as pilot:
        await pilot.press("slash", *"Took", "enter")
        await until(pilot, lambda: "/Took 0 lines" in shown(pilot))
        await until(pilot, lambda: "no line matches" in shown(pilot))


async def test_hits_far_from_what_is_held_are_gone_to() -> None:
    async with opened(Node(), 8001) as pilot:
        await pilot.press("slash", *"step 123 ", "enter")
        await until(pilot, lambda: "1/1" in shown(pilot).replace("2/2", "1/1"))
        await until(pilot, lambda: "step 123 " in current(pilot))
        shown_numbers = [line for line in body(pilot) if "step 12" in line]
        assert len(shown_numbers) >= 8


async def test_new_hits_are_counted_as_they_come() -> None:
    node = Node()
    async with opened(node) as pilot:
        await pilot.press("slash", *"took", "enter")
        await until(pilot, lambda: "8/8" in shown(pilot))
        grow(node, 50)
        await until(pilot, lambda: "8/10" in shown(pilot))


async def test_a_folded_row_is_one_step() -> None:
    async with opened(Node()) as pilot:
        await pilot.press("equals_sign", "slash", *"took", "enter")
        await until(pilot, lambda: "/took" in shown(pilot) and "step 37" in current(pilot))
        await pilot.press("N")
        await until(pilot, lambda: "step 27" in current(pilot))
        await pilot.press("n")
        await until(pilot, lambda: "step 37" in current(pilot))


async def test_errors_and_warnings_are_steps_of_their_own() -> None:
    async with opened(Node(), 101) as pilot:
        await until(pilot, lambda: "✖ 8" in shown(pilot))
        assert "e error" in keys(pilot)
        await pilot.press("E")
        await until(pilot, lambda: "request 99" in current(pilot))
        await pilot.press("E", "E")
        await until(pilot, lambda: "request 74" in current(pilot))
        await pilot.press("e")
        await until(pilot, lambda: "request 99" in current(pilot))
        await pilot.press("e", "e")
        await until(pilot, lambda: "no error behind this line" in shown(pilot))
        await pilot.press("V")
        await until(pilot, lambda: "step 97 took" in current(pilot))
        await pilot.press("v")
        await until(pilot, lambda: "step 97 took" in current(pilot))


async def test_a_filter_shows_only_its_lines_and_goes_again() -> None:
    node = Node()
    async with opened(node, 101) as pilot:
        await pilot.press("ampersand", *"took 41", "enter")
        await until(pilot, lambda: "&took 41 20 lines" in shown(pilot) and len(body(pilot)) == 22)
        await until(pilot, lambda: all("took" in line for line in body(pilot)[:20]))
        assert "i invert" in keys(pilot)
        grow(node, 110)
        await until(pilot, lambda: "22 lines" in shown(pilot) and "step 107" in shown(pilot))
        await pilot.press("i")
        await until(pilot, lambda: "&!took 41 198 lines" in shown(pilot))
        await until(
            pilot, lambda: "step 109 " in shown(pilot) and "took" not in "".join(body(pilot))
        )
        await pilot.press("1")
        await until(pilot, lambda: "&!took 41 99 lines" in shown(pilot))
        await pilot.press("ampersand", "escape")
        await until(pilot, lambda: "&" not in shown(pilot).splitlines()[0])
        await until(pilot, lambda: "step 107 took" in shown(pilot))


async def test_a_filtered_log_is_read_as_far_as_one_looks() -> None:
    async with opened(Node(), 4001) as pilot:
        await pilot.press("ampersand", *"kv", "enter")
        await until(pilot, lambda: "lines" in shown(pilot) and "step 4000 " in shown(pilot))
        assert len(screen(pilot).feed.rows.visible) < 1000
        await pilot.press("g")
        await until(pilot, lambda: "step 0 " in body(pilot)[0])
        await pilot.press(*["pagedown"] * 40)
        await until(pilot, lambda: "kv" in body(pilot)[0] and "step 4" in body(pilot)[0])
        await pilot.press("slash", *"step 3000 ", "enter")
        await until(pilot, lambda: "step 3000 " in current(pilot))


async def test_a_hit_that_the_filter_hides_is_told() -> None:
    async with opened(Node(), 101) as pilot:
        await pilot.press("ampersand", *"took", "enter")
        await until(pilot, lambda: "&took 20 lines" in shown(pilot))
        await pilot.press("slash", *"refused", "enter")
        await until(pilot, lambda: "the filter hides that line" in shown(pilot))


async def test_what_is_found_while_the_screen_goes_is_let_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened(Node()) as pilot:
        logs = screen(pilot)
        await pilot.press("ampersand", *"took", "enter")
        await until(pilot, lambda: "&took 8 lines" in shown(pilot))
        gone: list[LogView] = []

        def unmounted(view: LogView) -> None:
            gone.append(view)
            logs.found(Kind.FILTER)

        monkeypatch.setattr(LogView, "on_unmount", unmounted, raising=False)
        pilot.app.pop_screen()
        await until(pilot, lambda: bool(gone) and pilot.app.screen.NAME == "node")


async def test_escape_shows_all_lines_before_it_leaves() -> None:
    async with opened(Node()) as pilot:
        await pilot.press("ampersand", *"took", "enter")
        await until(pilot, lambda: "&took 8 lines" in shown(pilot))
        assert "Esc all lines" in keys(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: "&took" not in shown(pilot) and "step 39" in shown(pilot))
        assert "Esc back" in keys(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen.NAME == "node")


async def test_enter_opens_the_traceback_that_a_line_announces() -> None:
    node = Node()
    lines = ("[2026-11-30 12:00:04.000 TP0 capture] ERROR rank-0 ended by an exception", *TRACE)
    node.texts["rank-0"] = "".join(f"{line}\n" for line in lines)
    node.say(with_sizes(serving(), {"rank-0": len(node.texts["rank-0"])}))
    async with panel(node, engine=Engine).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "tok/s" in shown(pilot))
        await pilot.press("l")
        await until(pilot, lambda: "ended by an exception" in shown(pilot))
        assert "run_rank" not in shown(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: "run_rank" in shown(pilot))
        assert "Traceback" in current(pilot)


async def test_without_a_launch_keys_do_no_harm() -> None:
    async with panel(Node(snapshot(None))).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "press r" in shown(pilot))
        await pilot.press("l")
        await until(pilot, lambda: "nothing launched yet" in shown(pilot))
        await pilot.press("e", "v", "g", "G", "m", "u", "n", "enter", "equals_sign", "t", "w", "f")
        await pilot.pause()
        assert "nothing launched yet" in shown(pilot)


@pytest.mark.parametrize("key", ["slash", "ampersand"])
async def test_a_pattern_that_is_none_is_told_where_it_was_typed(key: str) -> None:
    async with opened(Node()) as pilot:
        await pilot.press(key, *"(a", "enter")
        await until(pilot, lambda: "is no regular expression" in shown(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: "is no regular" not in shown(pilot))
        assert "step 39" in shown(pilot)


async def test_a_search_that_breaks_off_is_told_and_taken_up_again() -> None:
    node = Node()
    async with opened(node) as pilot:
        node.breaks = PanelError("the pattern came to no end within 5 s", "avoid (a+)+")
        await pilot.press("slash", *"(a+)+b", "enter")
        await until(pilot, lambda: "! the pattern came to no end" in shown(pilot))
        assert "step 39" in shown(pilot)
        node.breaks = None
        node.say(Lost("gone"))
        await until(pilot, lambda: "no supervisor" in shown(pilot))
        grow(node, 41)
        await until(pilot, lambda: "came to no end" not in shown(pilot))


async def test_marks_are_walked_copied_and_saved(tmp_path: Path) -> None:
    node = Node()
    node.folder = str(tmp_path)
    async with opened(node, 3001) as pilot:
        await pilot.press("y")
        await until(pilot, lambda: "1 line copied" in shown(pilot))
        copied = tmp_path / "copied.txt"
        assert copied.read_text().endswith("decode step 3000 running 4 [bold]kv[/bold] 31%\n")
        assert copied.stat().st_mode & 0o777 == 0o600
        await pilot.press("up", "m")
        await pilot.press("g")
        await until(pilot, lambda: "step 0 " in body(pilot)[0])
        await pilot.press("m")
        await until(pilot, lambda: body(pilot)[0].startswith("▸"))
        await pilot.press("u")
        await until(pilot, lambda: "step 3000" in current(pilot))
        await pilot.press("y")
        await until(pilot, lambda: "2 lines copied" in shown(pilot))
        assert [line.split("step ")[1].split()[0] for line in copied.read_text().splitlines()] == [
            "0", "3000",
        ]  # fmt: skip
        assert pilot.app.clipboard == copied.read_text()
        await pilot.press("U", "m", "u", "m", "u")
        await until(pilot, lambda: "no line is marked" in shown(pilot))


async def test_what_a_filter_lets_through_is_saved_whole(tmp_path: Path) -> None:
    node = Node()
    node.folder = str(tmp_path)
    async with opened(node, 3001) as pilot:
        await pilot.press("s")
        await until(pilot, lambda: "nothing is filtered" in shown(pilot))
        await pilot.press("ampersand", *"took", "enter")
        await until(pilot, lambda: "600 lines  " in shown(pilot))
        await pilot.press("s", "enter")
        await until(pilot, lambda: "600 lines saved as" in shown(pilot))
        lines = (tmp_path / "filtered-17.txt").read_text().splitlines()
        assert len(lines) == 600
        assert lines[0].endswith("WARNING step 7 took 41 ms, usual 2 ms")
        await pilot.press("s", *"/none/x", "enter")
        await until(pilot, lambda: "cannot be written" in shown(pilot))


async def test_a_traceback_is_opened_by_enter_and_copied_whole(tmp_path: Path) -> None:
    node = Node()
    node.folder = str(tmp_path)
    lines = ["Traceback (most recent call last):"]
    for frame in range(9):
        lines += [f'  File "f{frame}.py", line {frame}, in f', f"    call({frame})"]
    lines += ["ValueError: bad"]
    node.texts["rank-3"] = "".join(
        f"[2026-11-30 12:00:04.000 TP3 capture] ERROR {line}\n" for line in lines
    )
    node.say(with_sizes(crashed(), {"rank-3": len(node.texts["rank-3"])}))
    async with panel(node).run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: "failed first" in shown(pilot))
        await pilot.press("l")
        await until(pilot, lambda: "… 8 more, Enter" in shown(pilot))
        await pilot.press("g")
        await until(pilot, lambda: "Enter open" in keys(pilot))
        for press in (["y"], ["m", "y"]):
            await pilot.press(*press)
            await until(pilot, lambda: "20 lines copied" in shown(pilot))
            assert pilot.app.clipboard == node.texts["rank-3"]
            assert (tmp_path / "copied.txt").read_text() == node.texts["rank-3"]
            pilot.app.clear_notifications()
        await pilot.press("enter")
        await until(pilot, lambda: "call(0)" in shown(pilot) and "more, Enter" not in shown(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: "call(0)" not in shown(pilot) and "call(8)" in shown(pilot))
        await pilot.press("slash", *"call.3", "enter")
        await until(pilot, lambda: "call(3)" in current(pilot))


async def test_help_explains_the_map_of_times_and_cuts_nothing_silently() -> None:
    async with opened(Node()) as pilot:
        await pilot.press("question_mark")
        await until(pilot, lambda: pilot.app.screen.NAME == "help")
        text = " ".join(pilot.app.screen.query_one("#text", Rows).text.split())
        assert "The right edge is a map of the log's time" in text
        await pilot.resize_terminal(30, 15)
        await until(pilot, lambda: "Show the log of th…" in shown(pilot))
