"""The daemon's own life: lock, socket, adoption, start and end."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from panel.config.home import find_home
from panel.domain.errors import PanelError
from panel.domain.states import LaunchState
from panel.domain.wire import LaunchRecord
from panel.supervisor.start import answers, ensure_running
from tests.supervisor.support import FAKE, Supervised, supervised, wait_for


def test_files_are_for_this_user_alone(node: Supervised, free_port: int) -> None:
    node.up(port=free_port)

    assert stat.S_IMODE(node.home.socket.stat().st_mode) == 0o600
    for path in (node.home.state, *node.home.state.rglob("*")):
        if path.name != "config.toml":
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_second_supervisor_is_refused(node: Supervised) -> None:
    assert node.process is not None
    second = subprocess.run(FAKE, env=node.env, capture_output=True, text=True, timeout=30)

    assert second.returncode == 2
    assert second.stderr.count("\n") == 1
    assert f"supervisor {node.process.pid} serves {node.home.state}" in second.stderr
    assert node.snapshot().supervisor.pid == node.process.pid


def test_stale_socket_is_replaced(node: Supervised) -> None:
    node.kill(signal.SIGKILL)
    assert node.home.socket.exists()

    node.start()

    assert node.snapshot().supervisor.pid == node.process.pid


def test_killed_supervisor_leaves_the_gang_and_the_next_adopts_it(
    node: Supervised, free_port: int
) -> None:
    view = node.up(port=free_port)
    node.kill(signal.SIGKILL)
    node.start()

    adopted = node.wait_launch(view.id, LaunchState.SERVING)

    assert adopted.note.startswith("adopted")
    assert (adopted.uuid, adopted.ready_s) == (view.uuid, view.ready_s)
    assert [each.pid for each in adopted.processes] == [each.pid for each in view.processes]
    assert adopted.t > view.t
    node.post("/v1/down")
    node.wait_launch(view.id, LaunchState.STOPPED)
    assert node.processes(view.uuid) == []


def test_death_while_nobody_watched_is_told_afterwards(node: Supervised, free_port: int) -> None:
    view = node.up(port=free_port)
    node.kill(signal.SIGKILL)
    os.kill(view.ranks[1].pid, signal.SIGKILL)
    wait_for(lambda: not node.processes(view.uuid), "the keeper to end the gang")
    node.start()

    crashed = node.wait_launch(view.id, LaunchState.CRASHED)

    assert crashed.verdict is not None
    assert crashed.verdict.root_ranks == (1,)
    assert node.get("/v1/launches/1", LaunchRecord).state is LaunchState.CRASHED


def test_gang_that_lost_both_parents_is_ended(node: Supervised, free_port: int) -> None:
    view = node.up(port=free_port)
    node.kill(signal.SIGKILL)
    keeper = set(node.processes(view.uuid)) - {each.pid for each in view.processes}
    os.kill(keeper.pop(), signal.SIGKILL)
    node.start()

    node.wait_launch(view.id, LaunchState.LOST)

    assert node.processes(view.uuid) == []


def test_sigterm_leaves_the_gang_and_no_socket(node: Supervised, free_port: int) -> None:
    view = node.up(port=free_port)

    assert node.kill(signal.SIGTERM) == 0

    assert not node.home.socket.exists()
    assert len(node.processes(view.uuid)) == 4


def test_shutdown_leaves_nothing(node: Supervised, free_port: int) -> None:
    view = node.up(port=free_port)
    assert node.process is not None
    with node.http.stream("GET", "/v1/events") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: snapshot"
        assert node.post("/v1/shutdown")["launch"] == view.id
        *_, last = lines
    assert last == ""

    assert node.process.wait(30) == 0
    assert node.processes(view.uuid) == []
    assert not node.home.socket.exists()


def test_warm_pair_serves_the_next_launch(tmp_path: Path, free_port: int) -> None:
    with supervised(tmp_path / "home") as node:
        wait_for(lambda: node.snapshot().supervisor.warm, "a warm spawner")
        node.up(port=free_port)
        assert node.process is not None
        pid = node.process.pid
        wait_for(lambda: node.snapshot().supervisor.warm, "the next warm spawner")
        node.post("/v1/shutdown")
        assert node.process.wait(30) == 0
        children = Path(f"/proc/{pid}/task/{pid}/children")
        assert not children.exists()


def test_long_home_has_a_short_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 25)
    with supervised(folder) as node:
        assert len(os.fsencode(node.home.socket)) <= 100
        assert node.snapshot().supervisor.socket == str(node.home.socket)
        parent = node.home.socket.parent
        assert stat.S_IMODE(parent.stat().st_mode) == 0o700
        node.post("/v1/shutdown")
        assert node.process is not None
        assert node.process.wait(30) == 0
    parent.rmdir()


def test_ensure_running_starts_one_that_outlives_us(home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text("warm = false\n")
    node = Supervised(home, FAKE)
    try:
        path = ensure_running(find_home())
        pid = node.snapshot().supervisor.pid
        assert path == node.home.socket
        assert os.getsid(pid) == pid
        assert ensure_running(find_home()) == path
        assert node.snapshot().supervisor.pid == pid
        node.post("/v1/shutdown")
        wait_for(lambda: not answers(path), "the end of the supervisor")
        os.waitpid(pid, 0)
    finally:
        node.close()


def test_ensure_running_says_why_it_failed(home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text("wram = true\n")
    before = time.monotonic()

    with pytest.raises(PanelError, match=r"unknown key 'wram' \(did you mean warm\?\)"):
        ensure_running(find_home())

    assert time.monotonic() - before < 10


@pytest.mark.parametrize(
    "module", ["panel.supervisor.daemon", "panel.supervisor.keeper", "panel.cli"]
)
def test_imports_neither_textual_nor_torch(module: str) -> None:
    code = (
        f"import {module}, sys; print(sorted({{'torch', 'textual', 'numpy'}} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_refuses_the_folder_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").write_text("a file")
    monkeypatch.setenv("MOEPANEL_HOME", str(tmp_path / "home"))

    with pytest.raises(PanelError, match="not a folder of this user"):
        find_home()


def test_socket_is_not_left_open_by_a_probe(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert not answers(path)
        listener.listen()
        assert answers(path)
