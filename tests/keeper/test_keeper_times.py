"""Arrival times: every byte has one, no file has more than a hundred a second."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panel.supervisor.keeper import linux
from panel.supervisor.keeper.times import GROWING_S, POLLING_S, Arrivals
from tests.keeper.support import KeeperProcess, wait_for

StartKeeper = Callable[..., KeeperProcess]


def samples(path: Path) -> list[tuple[float, int]]:
    lines = path.read_text().splitlines()
    return [(line["t"], line["offset"]) for line in map(json.loads, lines)]


def arrivals(folder: Path, clock: Callable[[], float]) -> Arrivals:
    return Arrivals({"rank-0": str(folder / "rank-0.log")}, str(folder), clock)


def append(folder: Path, data: bytes) -> None:
    with open(folder / "rank-0.log", "ab") as log:
        log.write(data)


@settings(max_examples=30, deadline=None)
@given(writes=st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=20))
def test_the_time_of_a_byte_is_that_of_the_first_look_after_it(
    writes: list[tuple[int, bool]],
) -> None:
    """Model: each write happens at its number; a look follows some of the writes."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        now = 0.0
        watching = arrivals(folder, lambda: now)
        expected: list[tuple[float, int]] = []
        size = sampled = 0
        for number, (length, look) in enumerate([*writes, (0, True)]):
            now = float(number)
            append(folder, b"x" * length)
            size += length
            if look:
                watching.sample()
                if size > sampled:
                    expected.append((now, sampled))
                    sampled = size
        assert samples(folder / "rank-0.times") == expected


def test_a_log_at_rest_is_not_looked_at(tmp_path: Path) -> None:
    watching = arrivals(tmp_path, lambda: 0.0)
    watching.look(100.0)
    assert watching.due is None
    append(tmp_path, b"one\n")
    watching.reported()
    assert watching.due is not None
    watching.look(200.0)
    assert watching.due == 200.0 + GROWING_S
    watching.look(201.0)
    assert watching.due is None
    assert samples(tmp_path / "rank-0.times") == [(0.0, 0)]


def test_a_renamed_log_is_still_watched(tmp_path: Path) -> None:
    watching = arrivals(tmp_path, lambda: 0.0)
    with open(tmp_path / "rank-0.log", "ab", buffering=0) as log:
        os.rename(tmp_path / "rank-0.log", tmp_path / "rank-0.old")
        watching.look(100.0)
        log.write(b"one\n")
        watching.reported()
        assert watching.due is not None


def test_without_inotify_the_logs_are_looked_at_regularly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def none() -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(linux, "inotify", none)
    watching = arrivals(tmp_path, lambda: 0.0)
    assert watching.fd is None
    watching.look(100.0)
    assert watching.due == 100.0 + POLLING_S
    append(tmp_path, b"one\n")
    watching.look(200.0)
    assert samples(tmp_path / "rank-0.times") == [(0.0, 0)]
    assert "Too many open files" in capfd.readouterr().err


def test_the_logs_of_a_gang_have_times(start_keeper: StartKeeper) -> None:
    code = """
import os, time
until = time.monotonic() + 0.3
while time.monotonic() < until:
    os.write(1, b"a line of some length\\n" * 5)
"""
    keeper = start_keeper(spawner=None)
    keeper.order(processes=[keeper.engine(code)])
    assert keeper.end() == 0
    times, offsets = zip(*samples(keeper.folder / "engine.times"), strict=True)
    size = (keeper.folder / "engine.log").stat().st_size
    assert offsets[0] == 0
    assert list(offsets) == sorted(set(offsets))
    assert offsets[-1] < size
    # The last sample may come early, at the end of the gang.
    assert all(late - soon >= GROWING_S * 0.9 for soon, late in pairwise(times[:-1]))
    assert times[0] < keeper.events("exit")[0]["t"]
    assert len(offsets) >= 3


def test_a_single_line_gets_its_time_at_once(start_keeper: StartKeeper) -> None:
    code = """
import os, sys, time
sys.stdin.read()
t0 = int(os.environ["MOEPANEL_T0_NS"])
print((time.monotonic_ns() - t0) / 1e9, flush=True)
time.sleep(60)
"""
    keeper = start_keeper(spawner=None)
    keeper.order(processes=[keeper.engine(code)])
    times = keeper.folder / "engine.times"
    wait_for(lambda: times.exists() and samples(times), "a sample")
    (noted, offset), *_ = samples(times)
    assert offset == 0
    assert 0.0 <= noted - float(keeper.log("engine")) < 1.0
