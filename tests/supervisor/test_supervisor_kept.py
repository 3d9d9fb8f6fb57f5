"""The weight keeper under the supervisor: who may use it, when it goes, and that it does go.

Ranks are played by this test: the fake engine's have no weights.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from panel.domain.snapshot import KeptWeights
from panel.domain.states import LaunchState
from panel.server.kept.wire import Frame, receive, send
from panel.supervisor import procfs
from tests.supervisor.support import Supervised, supervised, wait_for

SIZE = 1 << 20


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Supervised]:
    (tmp_path / "config.toml").write_text("warm = false\n")
    with supervised(tmp_path) as node:
        yield node
        kept = node.snapshot().kept if node.process and node.process.poll() is None else None
        if kept is not None:
            node.post("/v1/shutdown")
            gone(kept.pid)


class Rank:
    """A rank that uses the weight keeper."""

    def __init__(self, node: Supervised, key: str = "layout", rank: int = 0) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.settimeout(30)
        self._connection.connect(str(node.home.socket.with_name("weights.sock")))
        send(self._connection, Frame({"key": key, "rank": rank, "gpu": None, "size": SIZE}))
        answer = receive(self._connection)
        assert answer is not None
        self.refused: str | None = answer.header.get("refused")
        self.parcel, self.memory = answer.body, b""
        if answer.descriptor is not None:
            self._map = mmap.mmap(answer.descriptor, SIZE)
            os.close(answer.descriptor)
            self.memory = self._map[:8]

    def load(self) -> None:
        self._map[:8] = b"weights!"
        send(self._connection, Frame({"seal": 1}, b"parcel"))

    def die(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def rank(node: Supervised, key: str = "layout") -> Iterator[Rank]:
    """Play a rank that dies at the end."""
    one = Rank(node, key)
    try:
        yield one
    finally:
        one.die()


def kept(node: Supervised, **figures: Any) -> KeptWeights:
    """Return what is kept, once it has these figures."""

    def found() -> KeptWeights | None:
        now = node.snapshot().kept
        same = now is not None and all(getattr(now, k) == v for k, v in figures.items())
        return now if same else None

    return wait_for(found, f"weights kept with {figures}")


def gone(pid: int) -> None:
    wait_for(lambda: procfs.state(pid) in (None, "Z", "X"), f"the end of {pid}")


def relaunch(node: Supervised, **body: Any) -> None:
    number = node.post("/v1/relaunch", **body)["launch"]
    node.wait_launch(number, LaunchState.SERVING)


def test_weights_stay_over_relaunch_and_crash_until_down(node: Supervised, free_port: int) -> None:
    node.up(**{"port": free_port, "keep-weights": "true"})
    with rank(node) as first:
        assert (first.parcel, first.refused) == (b"", None)
        first.load()
        kept(node, bytes=SIZE, ranks=1, whole=1, users=1)
    holder = kept(node, users=0)
    assert not holder.leaving
    relaunch(node, set={"max-running-requests": "4"})
    with rank(node) as second:
        assert (second.parcel, second.memory) == (b"parcel", b"weights!")
    crash = node.post("/v1/relaunch", set={"fault": "rank=1,phase=capture,kind=kill"})["launch"]
    node.wait_launch(crash, LaunchState.CRASHED)
    assert kept(node, users=0, whole=1).pid == holder.pid
    relaunch(node, unset=["fault"])
    with rank(node) as third:
        assert third.memory == b"weights!"
        node.post("/v1/down")
        node.wait_launch(node.snapshot().launch.id, LaunchState.STOPPED)  # type: ignore[union-attr]
        # The last rank still lives: its memory is not taken from under it.
        assert kept(node, leaving=True).users == 1
        assert procfs.state(holder.pid) is not None
        refused = Rank(node)
        assert refused.refused == "the weight keeper is told to end"
        refused.die()
    gone(holder.pid)
    wait_for(lambda: node.snapshot().kept is None, "nothing kept")
    assert not list(node.home.state.glob("weights*"))


def test_a_launch_that_does_not_want_them_finds_the_memory_free(
    node: Supervised, free_port: int
) -> None:
    node.up(**{"port": free_port, "keep-weights": "true"})
    with rank(node) as first:
        first.load()
    holder = kept(node, users=0)
    number = node.post("/v1/relaunch", unset=["keep-weights"])["launch"]
    node.wait_launch(number, LaunchState.SERVING)
    assert procfs.state(holder.pid) is None
    assert node.snapshot().kept is None
    relaunch(node, set={"keep-weights": "true"})
    assert kept(node).pid != holder.pid
    with rank(node) as fresh:
        assert fresh.parcel == b""
        fresh.load()
    with rank(node, "another layout") as other:
        assert other.parcel == b""
        kept(node, bytes=SIZE, whole=0)
        # It dies before its weights are complete: they are nobody's.
    kept(node, bytes=0, ranks=0)


def test_a_supervisor_that_is_killed_leaves_nothing_but_what_ranks_use(
    node: Supervised, free_port: int
) -> None:
    node.up(**{"port": free_port, "keep-weights": "true"})
    with rank(node) as first:
        first.load()
        holder = kept(node, whole=1)
        node.kill(signal.SIGKILL)
        node.start()
        adopted = kept(node, leaving=True)
        assert (adopted.pid, adopted.bytes) == (holder.pid, SIZE)
        launch = node.snapshot().launch
        assert launch is not None
        assert launch.state is LaunchState.SERVING
    gone(holder.pid)
    wait_for(lambda: node.snapshot().kept is None, "nothing kept")
    relaunch(node)
    assert kept(node).pid != holder.pid


def test_without_a_launch_it_ends_with_its_supervisor(node: Supervised, free_port: int) -> None:
    node.up(**{"port": free_port, "keep-weights": "true"})
    with rank(node) as first:
        first.load()
    holder = kept(node, users=0)
    node.kill(signal.SIGKILL)
    gone(holder.pid)


def test_shutdown_waits_for_it(node: Supervised, free_port: int) -> None:
    node.up(**{"port": free_port, "keep-weights": "true"})
    with rank(node) as first:
        first.load()
    holder = kept(node, users=0)
    node.post("/v1/shutdown")
    assert node.process is not None
    assert node.process.wait(60) == 0
    assert procfs.state(holder.pid) is None


def test_one_that_is_killed_or_stuck_is_in_nobodys_way(node: Supervised, free_port: int) -> None:
    node.up(**{"port": free_port, "keep-weights": "true"})
    first = kept(node)
    os.kill(first.pid, signal.SIGKILL)
    wait_for(lambda: node.snapshot().kept is None, "its end to be seen")
    relaunch(node)
    second = kept(node)
    assert second.pid != first.pid
    os.kill(second.pid, signal.SIGSTOP)
    relaunch(node, unset=["keep-weights"])
    assert procfs.state(second.pid) is None
