"""Overlong logs lose their middle: whole lines, noted, with a bound on what stays on disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from panel.logs.holes import parse_holes
from panel.supervisor.keeper import linux
from panel.supervisor.keeper.holes import BUSY_S, IDLE_S, Holes

KIB = 1 << 10
CAP, KEPT, STEP = 512 * KIB, 64 * KIB, 64 * KIB


def holes_of(folder: Path, alarms: list[str]) -> Holes:
    logs = {source: str(folder / f"{source}.log") for source in ("rank-0", "rank-1")}
    return Holes(logs, str(folder), alarms.append, cap=CAP, kept=KEPT, step=STEP)


def write(path: Path, size: int) -> bytes:
    lines = b"".join(b"line %06d of a log that is too long\n" % i for i in range(size // 36 + 1))
    with path.open("ab") as file:
        file.write(lines[: lines.rfind(b"\n", 0, size) + 1])
    return path.read_bytes()


@pytest.fixture
def on_holes(tmp_path: Path) -> Path:
    fd = os.open(tmp_path / "probe", os.O_RDWR | os.O_CREAT)
    try:
        os.write(fd, b"x" * 8192)
        linux.punch_hole(fd, 0, 4096)
    except OSError:
        pytest.skip("this file system has no holes")
    finally:
        os.close(fd)
    return tmp_path


def test_the_middle_goes_and_the_rest_stays(on_holes: Path) -> None:
    alarms: list[str] = []
    holes = holes_of(on_holes, alarms)
    long, short = on_holes / "rank-0.log", on_holes / "rank-1.log"
    whole, little = write(long, 1 << 20), write(short, 32 * KIB)
    while holes.trim():
        pass
    assert long.stat().st_size == len(whole)
    stored = [path.stat().st_blocks * 512 for path in (long, short)]
    assert sum(stored) <= CAP
    assert short.read_bytes() == little
    (hole,) = parse_holes((on_holes / "rank-0.holes").read_bytes())
    after = long.read_bytes()
    assert hole.start >= KEPT
    assert len(whole) - hole.end >= KEPT
    assert after[: hole.start] == whole[: hole.start]
    assert after[hole.start - 1 : hole.start] == b"\n"
    assert after[hole.end :] == whole[hole.end :]
    assert whole[hole.end - 1 : hole.end] == b"\n"
    assert not after[hole.start : hole.end].strip(b"\0")
    assert hole.lines == whole[hole.start : hole.end].count(b"\n")
    assert alarms == []


def test_a_log_that_grows_on_is_punched_on(on_holes: Path) -> None:
    holes = holes_of(on_holes, [])
    for _ in range(4):
        write(on_holes / "rank-0.log", 512 * KIB)
        while holes.trim():
            pass
        assert (on_holes / "rank-0.log").stat().st_blocks * 512 <= CAP
    assert len(parse_holes((on_holes / "rank-0.holes").read_bytes())) == 1


def test_below_the_cap_nothing_happens(tmp_path: Path) -> None:
    holes = holes_of(tmp_path, [])
    written = write(tmp_path / "rank-0.log", 128 * KIB)
    holes.look(10.0)
    assert holes.due == 10.0 + IDLE_S
    assert (tmp_path / "rank-0.log").read_bytes() == written
    assert (tmp_path / "rank-0.holes").read_bytes() == b""


def test_a_line_without_end_is_cut(on_holes: Path) -> None:
    holes = holes_of(on_holes, [])
    (on_holes / "rank-0.log").write_bytes(b"x" * (1 << 20))
    while holes.trim():
        pass
    (hole,) = parse_holes((on_holes / "rank-0.holes").read_bytes())
    assert (hole.start, hole.lines) == (KEPT, 0)


def test_steps_follow_each_other_closely(on_holes: Path) -> None:
    holes = holes_of(on_holes, [])
    write(on_holes / "rank-0.log", 1 << 20)
    holes.look(1.0)
    assert holes.due == 1.0 + BUSY_S


def test_a_file_system_without_holes_is_an_alarm_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, start: int, end: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(linux, "punch_hole", refuse)
    alarms: list[str] = []
    holes = holes_of(tmp_path, alarms)
    written = write(tmp_path / "rank-0.log", 1 << 20)
    assert not holes.trim()
    assert not holes.trim()
    assert len(alarms) == 1
    assert "cannot be shortened here: Operation not supported" in alarms[0]
    assert (tmp_path / "rank-0.log").read_bytes() == written
