"""The launch screen: toggles, edits, undo, remedies, refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot
from textual.widgets import Input

from panel.domain.flags import BrokenProfile, Flag
from panel.domain.plan import Problem
from panel.domain.wire import Relaunch
from panel.screens.launch import LaunchScreen
from panel.widgets.draft import Draft, editable, matching, toggled
from tests.screens.stage import Engine, Node, panel, serving, shown, snapshot, until

REFUSAL = Problem(
    severity="refusal", text="ep-size 3 does not divide 16", remedy={"ep-size": "8"}
)  # fmt: skip


@asynccontextmanager
async def opened(node: Node) -> AsyncIterator[Pilot[None]]:
    async with panel(node, engine=Engine).run_test(
        size=(80, 24), notifications=True
    ) as pilot:  # fmt: skip
        await until(pilot, lambda: "gpu-a" in shown(pilot))
        await pilot.press("c")
        await until(pilot, lambda: "all flags (4)" in shown(pilot))
        yield pilot


def draft(pilot: Pilot[None]) -> Draft:
    screen = pilot.app.screen
    assert isinstance(screen, LaunchScreen)
    return screen.draft


async def test_toggles_show_what_was_and_undo_takes_them_back() -> None:
    node = Node(snapshot(serving().launch))
    async with opened(node) as pilot:
        assert "was ep8" in shown(pilot)
        await pilot.press("e")
        await until(pilot, lambda: "● ep8" in shown(pilot))
        assert "was ep8" not in shown(pilot)
        await pilot.press("s")
        await until(pilot, lambda: "● ngram:4" in shown(pilot))
        assert draft(pilot).set == {"ep": "on", "spec": "ngram:4"}
        await pilot.press("u", "u")
        await until(pilot, lambda: "was ep8" in shown(pilot))
        assert draft(pilot) == Draft()


async def test_relaunch_sends_the_draft_after_asking() -> None:
    node = Node(serving())
    async with opened(node) as pilot:
        await pilot.press("e")
        await until(pilot, lambda: "● ep8" in shown(pilot))
        await pilot.press("r")
        await until(pilot, lambda: "relaunch with these flags?" in shown(pilot))
        node.requests.clear()
        await pilot.press("r")
        await until(pilot, lambda: node.requests == [Relaunch(set={"ep": "on"})])
        await until(pilot, lambda: pilot.app.screen.NAME == "node")


async def test_a_refusal_makes_r_inert_and_R_forces() -> None:  # noqa: N802
    node = Node(serving())
    node.problems = (REFUSAL,)
    async with opened(node) as pilot:
        node.requests.clear()
        await pilot.press("r", "r")
        await until(pilot, lambda: "the plan refuses" in shown(pilot))
        assert node.requests == []
        await pilot.press("R", "R")
        await until(pilot, lambda: node.requests == [Relaunch(force=True)])


async def test_force_without_a_refusal_is_not_offered() -> None:
    node = Node(serving())
    async with opened(node) as pilot:
        node.requests.clear()
        await pilot.press("R", "R")
        await until(pilot, lambda: "refuses nothing" in shown(pilot))
        assert node.requests == []


async def test_the_remedy_of_a_problem_is_one_key() -> None:
    node = Node(serving())
    node.problems = (REFUSAL,)
    async with opened(node) as pilot:
        node.problems = ()
        await pilot.press("a")
        await until(pilot, lambda: "can be launched" in shown(pilot))
        assert draft(pilot).set == {"ep-size": "8"}


async def test_a_bad_value_stays_to_be_mended() -> None:
    node = Node(serving())
    async with opened(node) as pilot:
        await pilot.press("m", "end", "x", "enter")
        await until(pilot, lambda: "is not a number" in shown(pilot))
        assert pilot.app.screen.query_one(Input).value == "0.85x"
        assert draft(pilot) == Draft()
        await pilot.press("backspace", "backspace", "8", "enter")
        await until(pilot, lambda: draft(pilot).set == {"mem-fraction-static": "0.88"})
        assert "was 0.85" in shown(pilot)


async def test_any_flag_is_found_and_edited_and_emptied() -> None:
    node = Node(serving())
    async with opened(node) as pilot:
        await pilot.press("slash", *"sampling")
        await until(pilot, lambda: "Seed of sampling" in shown(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: "seed =" in shown(pilot))
        await pilot.press("backspace", *"7", "enter")
        await until(pilot, lambda: draft(pilot).set == {"seed": "7"})
        assert "was not passed" in shown(pilot)
        await pilot.press("slash", *"seed", "enter")
        await until(pilot, lambda: "seed =" in shown(pilot))
        await pilot.press("backspace", "enter")
        await until(pilot, lambda: draft(pilot) == Draft(unset=("seed",)))


async def test_keys_typed_into_a_value_do_nothing_else() -> None:
    node = Node(serving())
    async with opened(node) as pilot:
        await pilot.press("m", *"rqxeu?")
        await pilot.pause()
        assert pilot.app.screen.query_one(Input).value == "rqxeu?"
        assert draft(pilot) == Draft()
        await pilot.press("escape")
        await until(pilot, lambda: "mem-fraction-static =" not in shown(pilot))
        assert isinstance(pilot.app.screen, LaunchScreen)


async def test_another_profile_starts_anew() -> None:
    node = Node(serving())
    async with opened(node) as pilot:
        await pilot.press("p", *"kimi", "enter")
        await until(pilot, lambda: "kimi/builtin" in shown(pilot))
        assert draft(pilot) == Draft(profile="kimi")


async def test_held_keys_ask_for_one_plan() -> None:
    node = Node(serving())
    async with opened(node) as pilot:
        node.requests.clear()
        await pilot.press(*"sessesse")
        await until(pilot, lambda: len(node.requests) > 0)
        assert len(node.requests) < 8


def test_toggles_are_read_from_chips() -> None:
    chips = ("tp8", "ep4", "eagle3:3", "graphs≤16")
    assert [toggled(chips, name) for name in ("ep", "spec", "graphs")] == [
        "ep4", "eagle3:3", "graphs≤16",
    ]  # fmt: skip
    assert [toggled(("tp8", "no graphs"), name) for name in ("ep", "spec", "graphs")] == ["off"] * 3
    assert [editable(chips, name) for name in ("ep", "spec", "graphs")] == ["4", "eagle3:3", "16"]
    assert editable(("no graphs",), "graphs") == "off"


def test_a_toggle_is_turned_over_from_what_the_draft_already_says() -> None:
    chips = ("tp8", "ep4")
    assert Draft().flipped("ep", chips).set == {"ep": "off"}
    assert Draft().flipped("ep", chips).flipped("ep", chips).set == {"ep": "on"}
    assert Draft().flipped("spec", chips).set == {"spec": "ngram:4"}
    assert Draft().flipped("spec", chips).flipped("spec", chips).set == {"spec": "off"}


NAMES = st.sampled_from(["ep", "seed", "port"])
STEPS = st.lists(st.tuples(NAMES, st.sampled_from(["", "1", "2"])), max_size=8)


@given(STEPS)
def test_a_flag_is_set_or_unset_never_both(steps: list[tuple[str, str]]) -> None:
    built, last = Draft(), {}
    for name, text in steps:
        built = built.with_flags({name: text})
        last[name] = text
    assert built.set == {name: text for name, text in last.items() if text}
    assert set(built.unset) == {name for name, text in last.items() if not text}


def test_names_come_before_help_and_common_flags_before_others() -> None:
    def flag(name: str, help: str, common: bool = False) -> Flag:  # noqa: A002
        return Flag(name=name, kind="int", default="1", help=help, group="g", common=common)

    flags = [
        flag("alpha", "the port of it"), flag("port-b", "x"), flag("port-a", "x", True),
        flag("other", "y"),
    ]  # fmt: skip
    assert [one.name for one in matching(flags, "port")] == ["port-a", "port-b", "alpha"]
    assert [one.name for one in matching(flags, "it port")] == ["alpha"]
    assert len(matching(flags, "")) == 4


async def test_where_the_last_start_went() -> None:
    start = {"processes": 8.1, "args": 0.01, "weights": 2.7, "capture": 0.8}
    node = Node(serving(start=start))
    async with opened(node) as pilot:
        words = "start #17   processes 8.1s  weights 2.7s  capture 0.8s"
        await until(pilot, lambda: words in shown(pilot))


async def test_on_a_small_screen_the_verdict_stays_and_pages_show_the_rest() -> None:
    node = Node(serving())
    node.problems = tuple(
        Problem(severity="warning", text=f"warning {number}", remedy={}) for number in range(6)
    )
    app = panel(node, engine=Engine)
    async with app.run_test(size=(60, 15), notifications=True) as pilot:
        await until(pilot, lambda: "gpu-a" in shown(pilot))
        await pilot.press("c")
        await until(pilot, lambda: "can be launched" in shown(pilot))
        first, *_, keys = shown(pilot).splitlines()
        assert first.endswith("against #17 serving")
        assert keys.endswith("? more")
        assert "warning 5" not in shown(pilot)
        await pilot.press("pagedown")
        await until(pilot, lambda: "warning 5" in shown(pilot))
        assert "can be launched" in shown(pilot)
        await pilot.press("pageup")
        await until(pilot, lambda: "[e] expert parallel" in shown(pilot))


async def test_what_was_turned_on_and_off_is_no_change() -> None:
    node = Node(serving())
    async with opened(node) as pilot:
        await pilot.press("s")
        await until(pilot, lambda: "● ngram:4" in shown(pilot))
        await pilot.press("s")
        await until(pilot, lambda: "● ngram:4" not in shown(pilot))
        assert draft(pilot) == Draft()


async def test_leaving_says_that_changes_are_dropped() -> None:
    node = Node(serving())
    async with opened(node) as pilot:
        await pilot.press("e")
        await until(pilot, lambda: "● ep8" in shown(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: "the changes are dropped" in shown(pilot))
        await pilot.press("c")
        await until(pilot, lambda: "all flags (4)" in shown(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen.NAME == "node")
        assert "dropped" not in shown(pilot)


async def test_a_broken_profile_is_named_and_cannot_be_taken() -> None:
    wrong = BrokenProfile(name="mine", error="mine.toml: line 3 is no TOML")
    node = Node(msgspec.structs.replace(serving(), broken_profiles=(wrong,)))
    async with opened(node) as pilot:
        await pilot.press("p")
        await until(pilot, lambda: "mine.toml: line 3" in shown(pilot))
        await pilot.press(*"mine", "enter")
        await until(pilot, lambda: pilot.app.screen.NAME == "next launch")
        await until(pilot, lambda: "mine.toml: line 3" in shown(pilot))
        assert draft(pilot) == Draft()
