"""What cannot be brought about from outside: a full disk, a host that was restarted."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from panel.config.home import Home, find_home
from panel.config.settings import Settings
from panel.domain.flags import Profile, Request
from panel.domain.snapshot import LaunchView
from panel.domain.states import LaunchState
from panel.domain.wire import LaunchRecord, Up
from panel.planning.build import build_plan
from panel.supervisor.evidence import Folder, KeeperId, write_json
from panel.supervisor.launcher import Prelude, prepare_launch
from panel.supervisor.ledger import Ledger
from panel.supervisor.node import Node
from panel.supervisor.planner import Prepared
from tests.supervisor.fake_supervisor import Fake


@pytest.fixture
def place(tmp_path: Path) -> Home:
    home = find_home({"MOEPANEL_HOME": str(tmp_path / "home")})
    home.prepare()
    return home


async def watch(home: Home, act: Callable[[Node], object], state: LaunchState) -> LaunchView:
    """Run a node, let `act` do something, and return the launch once it is in `state`."""
    node = Node(home, Settings(warm=False), lambda _: Fake())
    running = asyncio.create_task(node.run())
    try:
        await node.publisher.wait_newer(0, 10)
        act(node)
        async with asyncio.timeout(20):
            while True:
                snapshot = node.publisher.snapshot
                assert snapshot is not None
                if snapshot.launch and snapshot.launch.state is state:
                    return snapshot.launch
                await node.publisher.wait_newer(snapshot.seq, 10)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await node.close()


async def test_full_disk_ends_the_launch_and_nothing_else(
    place: Home, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    def write(prelude: Prelude) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(prelude.folder.path))

    monkeypatch.setattr(Prelude, "write", write)
    body = Up(profile="tiny", set={"port": str(free_port)})

    view = await watch(place, lambda node: node.up(body), LaunchState.REFUSED)

    assert view.verdict is not None
    assert (view.verdict.status, view.verdict.final) == ("refused", True)
    assert "No space left on device" in view.verdict.headline
    assert view.processes == ()
    ledger = Ledger(place.ledger)
    assert ledger.get(1).outcome == view.verdict.headline
    ledger.close()


async def test_launch_of_another_boot_is_lost(place: Home) -> None:
    engine = Fake()
    profile = Profile(name="tiny", engine="builtin", flags={"tp-size": "2"})
    request = Request(profile="tiny")
    plan = build_plan(engine, profile, request)
    prepared = Prepared(engine, profile, request, dict(profile.flags), plan)
    prelude = prepare_launch(place, 1, prepared, "feed")
    spec = msgspec.structs.replace(prelude.spec, boot_id="another", t0_mono_ns=10**18)
    prelude._replace(spec=spec).write()
    folder = Folder(place.launch(1))
    write_json(folder.keeper, KeeperId(os.getpid(), 1, "another"))
    with folder.events.open("a") as file:
        for event in (
            {"t": 1.0, "kind": "spawn", "source": "rank-0", "pid": os.getpid(), "rank": 0},
            {"t": 8.0, "kind": "health", "endpoint": "/ready", "code": 200, "ms": 1.0},
        ):
            file.write(json.dumps(event) + "\n")
    ledger = Ledger(place.ledger)
    ledger.put(
        LaunchRecord(
            id=1,
            uuid="feed",
            request=request,
            engine="builtin",
            version="1",
            state=LaunchState.SERVING,
            t0_unix=1.0,
            tok_s=55.0,
        )
    )

    view = await watch(place, lambda _: None, LaunchState.LOST)

    assert view.t == 8.0
    assert view.verdict is not None
    assert (view.verdict.status, view.verdict.kind) == ("host_down", "host_reset")
    row = ledger.get(1)
    assert (row.state, row.outcome) == (LaunchState.LOST, view.verdict.headline)
    assert (row.ready_s, row.tok_s) == (8.0, 55.0)
    ledger.close()
