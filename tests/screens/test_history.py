"""The history screen reads the ledger, and again when a launch changes its state."""

from __future__ import annotations

from panel.domain.flags import Request
from panel.domain.states import LaunchState
from panel.domain.wire import LaunchRecord
from tests.screens.stage import Engine, Node, launch, panel, serving, shown, snapshot, until


def record(number: int, flags: dict[str, str], state: LaunchState) -> LaunchRecord:
    return LaunchRecord(id=number, uuid=f"u{number}", request=Request(profile="tiny"), flags=flags,
                        engine="builtin", version="0", state=state, t0_unix=0.0)  # fmt: skip


async def test_an_empty_ledger_says_what_to_press() -> None:
    async with panel(Node(snapshot(None)), engine=Engine).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "gpu-a" in shown(pilot))
        await pilot.press("h")
        await until(pilot, lambda: "nothing launched yet: Esc, then r launches" in shown(pilot))
        await pilot.press("down", "enter")
        assert pilot.app.screen.NAME == "history"


async def test_rows_tell_what_differed_and_are_read_again() -> None:
    node = Node(serving())
    node.records = [record(2, {"seed": "7"}, LaunchState.SERVING),
                    record(1, {"port": "1"}, LaunchState.STOPPED)]  # fmt: skip
    async with panel(node, engine=Engine).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "tok/s" in shown(pilot))
        await pilot.press("h")
        await until(pilot, lambda: "no port, seed=7" in shown(pilot))
        node.records = [record(2, {"seed": "7"}, LaunchState.STOPPED), *node.records[1:]]
        node.say(snapshot(launch(LaunchState.STOPPED), seq=2))
        await until(pilot, lambda: shown(pilot).count("stopped") == 2)


async def test_a_long_ledger_scrolls_with_the_cursor() -> None:
    node = Node(serving())
    node.records = [record(number, {}, LaunchState.STOPPED) for number in range(60, 0, -1)]
    async with panel(node, engine=Engine).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "tok/s" in shown(pilot))
        await pilot.press("h")
        await until(pilot, lambda: "60 launches" in shown(pilot))
        await pilot.press(*("down",) * 70)
        await until(pilot, lambda: "first" in shown(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: "#1 tiny" in shown(pilot))


async def test_one_launch_is_one() -> None:
    node = Node(serving())
    node.records = [record(1, {}, LaunchState.STOPPED)]
    async with panel(node, engine=Engine).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "gpu-a" in shown(pilot))
        await pilot.press("h")
        await until(pilot, lambda: "1 launch" in shown(pilot))
        assert "1 launches" not in shown(pilot)
