"""The panel in a real terminal, against the real supervisor, keeper and eight ranks."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.e2e.conftest import Node
from tests.e2e.terminal import Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

Open = Callable[[], Terminal]


@pytest.fixture
def open_panel(node: Node) -> Iterator[Open]:
    """Open panels at 80x24; all are closed at the end."""
    opened: list[Terminal] = []

    def open_one() -> Terminal:
        opened.append(node.terminal())
        return opened[-1]

    yield open_one
    for terminal in opened:
        terminal.close()


def serving_ranks(screen: str) -> int:
    """How many rank rows say that they serve."""
    return len(re.findall(r"^ ● +\d +serving", screen, re.MULTILINE))


def eight_serve(screen: str) -> bool:
    return serving_ranks(screen) == 8 and "● serving" in screen


def test_the_story(node: Node, open_panel: Open) -> None:
    """One key launches; talk, toggle EP, relaunch, see a drill's rank named, leave."""
    panel = open_panel()
    panel.wait_for("press r to launch tiny")
    panel.press("r")
    panel.wait_for(eight_serve)

    panel.press("k")
    panel.wait_for("say something")
    panel.press("What is a kernel?", "enter")
    panel.wait_for(lambda screen: bool(re.search(r"[1-9]\d* tok/s", screen)))
    panel.wait_quiet()
    panel.press("escape")
    panel.wait_for(eight_serve)

    panel.press("cer")  # In one write: keys act as if they were typed slowly.
    assert "● ep8" in panel.wait_for("r yes")
    panel.press("r")
    panel.wait_for(lambda screen: "#2" in screen and "ep8" in screen and eight_serve(screen))

    drill = node.run("relaunch", "--set", "fault=rank=5,phase=capture,kind=assert", "--wait")
    assert drill.returncode == 1
    screen = panel.wait_for(lambda screen: "#3" in screen and "rank 5 failed first" in screen)
    assert "AssertionError" in screen

    panel.press("q")
    assert panel.wait() == 0


def test_quitting_says_that_the_engine_keeps_running(node: Node, open_panel: Open) -> None:
    node.ok("up", "--wait")
    panel = open_panel()
    panel.wait_for(eight_serve)
    panel.press("q")
    panel.wait_for("the engine keeps running")
    assert panel.wait() == 0
    assert node.complete("The", tokens=2)


def test_losing_the_terminal_loses_nothing(node: Node, open_panel: Open) -> None:
    """SIGHUP ends the client alone; the next one attaches to the same launch."""
    node.ok("up", "--wait")
    launch = node.json("status")["launch"]["uuid"]
    panel = open_panel()
    panel.wait_for(eight_serve)
    panel.hang_up()
    assert panel.wait() == -signal.SIGHUP
    assert node.complete("The", tokens=2)

    again = open_panel()
    again.wait_for(eight_serve)
    assert node.json("status")["launch"]["uuid"] == launch


def test_a_killed_rank_is_named_on_the_screen(node: Node, open_panel: Open) -> None:
    node.ok("up", "--wait")
    victim = next(p for p in node.json("status")["launch"]["processes"] if p.get("rank") == 6)
    panel = open_panel()
    panel.wait_for(eight_serve)
    os.kill(victim["pid"], signal.SIGKILL)
    screen = panel.wait_for("rank 6 failed first")
    assert "SIGKILL" in screen
    panel.wait_for("crashed")


def test_the_panel_survives_the_supervisor(node: Node, open_panel: Open) -> None:
    """A lost supervisor is shown as such; once a new one adopted the gang, the panel goes on."""
    node.ok("up", "--wait")
    panel = open_panel()
    panel.wait_for(eight_serve)
    supervisor = psutil.Process(node.json("status")["supervisor"]["pid"])
    supervisor.kill()
    psutil.wait_procs([supervisor], timeout=5)
    panel.wait_for(lambda screen: "supervisor" in screen)
    assert node.run("up").returncode == 2
    panel.wait_for(lambda screen: "adopted" in screen and eight_serve(screen))
    node.ok("down")
    panel.wait_for(lambda screen: "stopped" in screen and serving_ranks(screen) == 0)


def test_logs_are_searched_and_filtered_through_the_supervisor(
    node: Node, open_panel: Open
) -> None:
    node.ok("up", "--wait")
    panel = open_panel()
    panel.wait_for(eight_serve)
    panel.press("l&kv_cache\r")
    panel.wait_for(lambda screen: bool(re.search(r"&kv_cache [1-9]\d* lines ", screen)))
    assert panel.text.startswith(" logs  #1 all ranks")
    panel.press("&", "escape")
    panel.wait_for(lambda screen: "&kv_cache" not in screen)
    panel.press("/(z+)+$\r")
    panel.wait_for("/(z+)+$ 0 lines")
    panel.press("/", "escape")
    panel.wait_for(lambda screen: "/(z+)+$" not in screen)
    panel.press("g")
    panel.wait_for(lambda screen: screen.splitlines()[1].startswith(" 00:0"))
    panel.press("=")
    panel.wait_for("×8 01234567")


def test_idle_panel_stays_quiet(node: Node, open_panel: Open) -> None:
    """An idle node paints next to nothing: heartbeats move, the rest does not."""
    node.ok("up", "--wait")
    panel = open_panel()
    panel.wait_for(eight_serve)
    began, painted = time.monotonic(), panel.painted
    panel.wait_for(lambda _: time.monotonic() - began > 3)
    assert (panel.painted - painted) / 3 < 20_000
