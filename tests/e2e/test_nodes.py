"""One engine over two nodes, the second by an ssh that stands in for the real one."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from panel.domain.states import LaunchState
from tests.e2e.nodes import Site, two_nodes
from tests.supervisor.support import wait_for

pytestmark = pytest.mark.e2e

FAKE_SSH = Path(__file__).parents[1] / "support/fake_ssh.py"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Two nodes, the second where the stand-in for ssh leads."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "ssh"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE_SSH} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SSH", str(tmp_path / "ssh"))
    with two_nodes(tmp_path, tmp_path / "ssh/beta.example", "beta.example") as found:
        yield found


def test_one_launch_over_two_nodes_is_one_screen_and_one_stop(site: Site) -> None:
    launch = site.serving()

    assert launch.state is LaunchState.SERVING
    assert [each.rank for each in launch.ranks] == list(range(8))
    assert [each.node for each in launch.ranks] == ["alpha"] * 4 + ["beta"] * 4
    assert all(Path(f"/proc/{each.pid}").exists() for each in launch.ranks)
    wait_for(
        lambda: (
            (seen := site.node.snapshot().launch)
            and {each.phase for each in seen.ranks} == {"serving"}
        ),
        "their phases",
    )
    figures = wait_for(
        lambda: (
            (seen := site.node.snapshot().launch)
            and all(each.rss and each.threads for each in seen.ranks)
            and seen.ranks
        ),
        "figures of both nodes' processes",
    )
    assert {each.node for each in figures} == {"alpha", "beta"}
    status = site.cli("status")
    assert "beta" in status.stdout
    site.node.kill(signal.SIGKILL)
    site.node.start()
    adopted = site.node.wait_launch(launch.id, LaunchState.SERVING)
    assert [each.pid for each in adopted.ranks] == [each.pid for each in launch.ranks]
    logs = site.cli("logs", "--grep", "Load weight end")
    assert sum(f"TP{rank} " in logs.stdout for rank in range(8)) == 8

    down = site.cli("down", "--timeout", "60")
    assert (down.returncode, down.stdout.strip()) == (0, f"#{launch.id} stopped"), down.stderr
    ended = site.ended(launch.id)
    assert ended.verdict is not None
    assert ended.verdict.status == "stopped"
    assert not any(Path(f"/proc/{each.pid}").exists() for each in launch.ranks)


def test_a_rank_that_dies_on_the_second_node_stops_both_and_is_named(site: Site) -> None:
    launch = site.serving()

    os.kill(launch.ranks[5].pid, signal.SIGKILL)
    ended = site.ended(launch.id)

    assert ended.state is LaunchState.CRASHED
    assert ended.verdict is not None
    assert ended.verdict.root_ranks == (5,)
    assert "beta" in ended.verdict.headline
    assert not any(Path(f"/proc/{each.pid}").exists() for each in launch.ranks)
    triage = site.cli("triage", "--json")
    told = json.loads(triage.stdout)
    assert (told["root_ranks"], told["headline"].partition(":")[0]) == ([5], "beta")


def test_a_killed_keeper_leaves_nothing_on_any_node(site: Site) -> None:
    launch = site.serving()
    keeper = json.loads((site.node.home.launch(launch.id) / "keeper.json").read_bytes())

    os.kill(keeper["pid"], signal.SIGKILL)
    site.ended(launch.id)

    assert not any(Path(f"/proc/{each.pid}").exists() for each in launch.ranks)


def test_a_node_that_cannot_be_reached_is_refused_before_anything_starts(site: Site) -> None:
    (site.beta / "gone").touch()
    up = site.cli("up", "--profile", site.profile, "--wait", "--timeout", "60")

    assert up.returncode == 1
    assert "beta (beta.example) cannot be reached" in up.stdout + up.stderr
    assert "No route to host" in up.stdout + up.stderr
    launch = site.node.snapshot().launch
    assert launch is not None
    assert (launch.state, launch.processes) == (LaunchState.REFUSED, ())


def test_a_node_that_goes_away_while_serving_ends_the_launch(site: Site) -> None:
    launch = site.serving()
    (site.beta / "gone").touch()

    lost = site.node.wait_launch(launch.id, LaunchState.LOST)

    assert lost.verdict is not None
    assert "beta" in lost.verdict.headline
    assert not any(Path(f"/proc/{each.pid}").exists() for each in launch.ranks[:4])
    for each in launch.ranks[4:]:
        os.kill(each.pid, signal.SIGKILL)
