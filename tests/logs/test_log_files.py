"""Files that are logs and files that are not; line numbers, windows, holes, records at offsets."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.domain.errors import NotFoundError, PanelError, UsageError
from panel.logs import index as module
from panel.logs.decode import decode
from panel.logs.files import LogFile, ReplacedError, is_binary, open_log
from panel.logs.grammars import Dialect
from panel.logs.grammars.sglang import SGLANG
from panel.logs.holes import Hole, kept, parse_holes, past
from panel.logs.index import LineIndex, line_start, tail, window
from panel.logs.merge import Arrivals
from panel.logs.pick import Picker
from panel.logs.records import RecordReader


class Bytes:
    """A log in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, count: int) -> bytes:
        return self.data[offset : offset + max(count, 0)]

    def close(self) -> None: ...


TEXTS = st.lists(st.sampled_from([b"\n", b"ab", b"c\n", b"\n\n"]), max_size=30).map(b"".join)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 8)


@given(TEXTS, st.data())
def test_line_numbers(log: bytes, data: st.DataObject) -> None:
    index = LineIndex(Bytes(log))
    for _ in range(4):
        offset = data.draw(st.integers(0, len(log)))
        assert index.line_at(offset) == log.count(b"\n", 0, offset) + 1
        line = data.draw(st.integers(1, 40))
        starts = [0, *(i + 1 for i, byte in enumerate(log) if byte == 10)]
        wanted = starts[line - 1] if line <= len(starts) else len(log)
        assert index.offset_of(line, len(log)) == wanted


@given(TEXTS, TEXTS)
def test_line_numbers_of_a_log_that_grows(first: bytes, more: bytes) -> None:
    log = Bytes(first)
    index = LineIndex(log)
    index.grow(len(first))
    log.data += more
    assert index.line_at(len(log.data)) == log.data.count(b"\n") + 1


@st.composite
def punched(draw: st.DrawFn) -> tuple[bytes, bytes, Hole]:
    """A log as it was, as it is, and its hole: whole lines."""
    log = draw(TEXTS.filter(lambda log: log.count(b"\n") > 1))
    starts = [0, *(i + 1 for i, byte in enumerate(log) if byte == 10)]
    a, b = sorted(draw(st.lists(st.sampled_from(starts), min_size=2, max_size=2, unique=True)))
    gone = log[:a] + b"\0" * (b - a) + log[b:]
    return log, gone, Hole(a, b, log.count(b"\n", a, b))


@given(punched(), st.data())
def test_line_numbers_around_a_hole(made: tuple[bytes, bytes, Hole], data: st.DataObject) -> None:
    log, gone, hole = made
    index = LineIndex(Bytes(gone), (hole,))
    offset = data.draw(st.sampled_from([*range(hole.start), *range(hole.end, len(log) + 1)]))
    assert index.line_at(offset) == log.count(b"\n", 0, offset) + 1
    start = log.rfind(b"\n", 0, offset) + 1
    assert index.offset_of(log.count(b"\n", 0, start) + 1, len(log)) in (start, hole.end)


@given(punched(), st.integers(1, 20))
def test_windows_reach_every_byte_outside_the_holes(
    made: tuple[bytes, bytes, Hole], limit: int
) -> None:
    log, gone, hole = made
    seen, offset = b"", 0
    while offset < len(log):
        shown = window(Bytes(gone), offset, limit, len(log), (hole,))
        assert shown.offset >= offset
        if not shown.data:
            break
        seen += shown.data
        offset = shown.offset + len(shown.data)
    assert seen == log[: hole.start] + log[hole.end :]


@given(TEXTS, st.integers(0, 60), st.integers(0, 60))
def test_the_beginning_of_a_line_and_the_tail(log: bytes, offset: int, limit: int) -> None:
    offset = min(offset, len(log))
    assert line_start(Bytes(log), offset) == log.rfind(b"\n", 0, offset) + 1
    end = tail(Bytes(log), limit, len(log))
    assert log[end.offset :] == end.data
    assert end.offset == 0 or log[end.offset - 1 : end.offset] == b"\n" or b"\n" not in end.data


def test_holes_of_a_file() -> None:
    said = b'{"start":10,"end":20,"lines":2}\nnot json\n{"start":20,"end":30,"lines":1}\n'
    assert parse_holes(said + b'{"start":50,"end":60,"lines":0}\n{"start":9') == (
        Hole(10, 30, 3), Hole(50, 60, 0),
    )  # fmt: skip
    holes = (Hole(10, 30, 3), Hole(50, 60, 0))
    assert kept(0, 100, holes) == [(0, 10), (30, 50), (60, 100)]
    assert kept(15, 55, holes) == [(30, 50)]
    assert kept(12, 20, holes) == []
    assert [past(offset, holes) for offset in (9, 10, 29, 30)] == [9, 30, 30, 30]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "engine.log"
    path.write_text("first\nsecond\n")
    return path


@pytest.fixture
def file(path: Path) -> Iterator[LogFile]:
    file = open_log(path)
    yield file
    file.close()


def test_a_plain_log_grows(path: Path, file: LogFile) -> None:
    assert (file.size(), file.read(6, 6)) == (13, b"second")
    with path.open("a") as log:
        log.write("third\n")
    assert (file.size(), file.read(13, 99)) == (19, b"third\n")


def test_a_log_that_shrinks(path: Path, file: LogFile) -> None:
    file.size()
    path.write_text("x\n")
    with pytest.raises(ReplacedError, match="shrank"):
        file.size()


def test_a_log_that_is_replaced(path: Path, file: LogFile) -> None:
    (path.parent / "new").write_text("longer than the one before\n")
    (path.parent / "new").replace(path)
    with pytest.raises(ReplacedError, match="was replaced"):
        file.size()


def test_a_log_that_is_deleted_stays_readable(path: Path, file: LogFile) -> None:
    path.unlink()
    assert (file.size(), file.read(0, 5)) == (13, b"first")


def test_a_packed_log(path: Path) -> None:
    whole = b"".join(b"line %d\n" % i for i in range(300_000))
    path.write_bytes(gzip.compress(whole))
    file = open_log(path)
    assert file.size() == len(whole)
    assert file.read(1_500_000, 50) == whole[1_500_000:1_500_050]
    assert file.read(100, 50) == whole[100:150]
    file.close()


def test_a_packed_log_that_is_cut_off_or_damaged(path: Path) -> None:
    packed = gzip.compress(os.urandom(4000))
    path.write_bytes(packed[:2000])
    file = open_log(path)
    file.size()
    file.close()
    path.write_bytes(packed[:1000] + b"xxxx" + packed[1004:])
    file = open_log(path)
    with pytest.raises(PanelError, match=r"damaged.*zcat"):
        file.size()
    file.close()


def test_what_is_no_log(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bin").write_bytes(bytes(range(256)) * 4)
    for name, kind, says in [
        ("", UsageError, "is a folder"),
        ("pipe", UsageError, "is a pipe or device"),
        ("bin", UsageError, "is a binary file"),
        ("none", NotFoundError, "there is no"),
    ]:
        with pytest.raises(kind, match=says):
            open_log(tmp_path / name)


def test_a_log_without_permission(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)  # Root may read all.
    with pytest.raises(PanelError, match=r"no permission to read .*chmod \+r"):
        open_log(path)


@pytest.mark.parametrize(
    ("head", "binary"),
    [
        (b"", False),
        ("Grüße 🙂\n".encode(), False),
        (b"\x1b[31mred\x1b[0m\rbar\n", False),
        (b"odd \x00 byte in much more text\n", False),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 9, True),
    ],
)
def test_is_binary(head: bytes, binary: bool) -> None:
    assert is_binary(head) is binary


LOG = b"".join(
    b"[2026-07-12 13:55:29 TP%d] head %d\n  more %d\n" % (i % 4, i, i) for i in range(100)
)
STARTS = [line.offset for line in decode(LOG)]


@given(st.sets(st.sampled_from(STARTS)), st.integers(0, 3))
def test_picked_records_are_those_of_a_whole_reading(offsets: set[int], around: int) -> None:
    dialect = Dialect(SGLANG)
    whole = RecordReader("engine", Arrivals(), dialect).read(decode(LOG))
    wanted = {
        at
        for offset in offsets
        for at in range(STARTS.index(offset) - around, STARTS.index(offset) + around + 1)
    }
    picker = Picker(Bytes(LOG), len(LOG), RecordReader("engine", Arrivals(), dialect), dialect)
    picked = list(picker.pick(sorted(offsets), around))
    assert [record for record, _ in picked] == [whole[i] for i in sorted(wanted) if 0 <= i < 200]
    assert {record.offset for record, found in picked if found} == offsets


def test_records_are_picked_from_a_log_larger_than_a_block() -> None:
    line = b"[2026-07-12 13:55:29 TP1] " + b"x" * 30_000 + b"\n"
    log = line * 200
    dialect = Dialect(SGLANG)
    picker = Picker(Bytes(log), len(log), RecordReader("engine", Arrivals(), dialect), dialect)
    offsets = [i * len(line) for i in range(0, 200, 7)]
    picked = list(picker.pick(offsets, 1))
    assert [record.offset for record, found in picked if found] == offsets
    assert all((record.rank, len(record.text)) == (1, 30_000) for record, _ in picked)


def test_a_packed_log_that_is_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    whole = "".join(f"line {number * number}\n" for number in range(20000)).encode()
    packed = gzip.compress(whole)
    (tmp_path / "a.log.gz").write_bytes(packed[: len(packed) // 2])
    log = open_log(tmp_path / "a.log.gz")
    found = log.read(0, 1 << 20)
    log.close()
    assert len(found) > len(whole) // 4
    assert whole.startswith(found)
