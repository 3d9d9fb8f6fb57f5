"""Log lines and events, as other programs read them."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from panel.server.heartbeat import HeartbeatFile
from panel.server.life import Life
from panel.server.phases import Phase
from panel.server.reporting import Events, rank_tag, setup

LINE = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} TP3 EP1 capture\] (INFO|ERROR) .*$")


@pytest.fixture
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("restored")
def test_every_line_of_a_record_has_the_prefix(capfd: pytest.CaptureFixture[str]) -> None:
    setup(rank_tag(3, 8, 4), "info", phase_of=lambda: "capture")
    log = logging.getLogger("test")
    log.debug("unseen")
    log.info("one\ntwo")
    try:
        raise ValueError("bad\nnews")
    except ValueError:
        log.exception("failed")
    lines = capfd.readouterr().err.splitlines()
    assert all(LINE.match(line) for line in lines)
    assert lines[0].endswith("INFO one")
    assert lines[1].endswith("INFO two")
    assert lines[3].endswith("ERROR Traceback (most recent call last):")
    assert lines[-1].endswith("ERROR news")


def test_the_tag_names_the_group_of_experts_only_where_there_are_groups() -> None:
    assert rank_tag(5, 8, 1) == "TP5"
    assert rank_tag(5, 8, 8) == "TP5 EP5"
    assert rank_tag(5, 8, 2) == "TP5 EP1"


def test_phases_are_told_in_every_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MOEPANEL_T0_NS", "0")
    heartbeats = HeartbeatFile(tmp_path / "beats", 2, create=True)
    path = tmp_path / "events.jsonl"
    life = Life(1, heartbeats, Events(str(path)), None)
    with caplog.at_level(logging.INFO):
        life.enter(Phase.WEIGHTS, "loading")
        life.progress(3, 9)
        assert heartbeats.read(1).phase is Phase.WEIGHTS
        assert (heartbeats.read(1).done, heartbeats.read(1).total) == (3, 9)
        life.enter(Phase.SERVING, "serving")
        life.tick()
    beat = heartbeats.read(1)
    assert (beat.phase, beat.step, beat.pid) == (Phase.SERVING, 1, os.getpid())
    assert heartbeats.read(0).mono_ns == 0
    assert [record.message for record in caplog.records] == ["loading", "serving"]
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(e["kind"], e["rank"], e["phase"]) for e in events] == [
        ("phase", 1, "weights"),
        ("phase", 1, "serving"),
    ]
    assert life.seconds["weights"] >= 0
    assert path.stat().st_mode & 0o777 == 0o600
    heartbeats.close()
