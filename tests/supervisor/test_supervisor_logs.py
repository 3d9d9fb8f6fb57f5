"""Windows into logs and searches in them, on files alone."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.domain.wire import Found, LogWindow, Moment
from panel.logs import search as logs_search
from panel.logs.query import Query
from panel.logs.records import Level
from panel.supervisor import search as module
from panel.supervisor.arrivals import offset_at
from panel.supervisor.evidence import Folder
from panel.supervisor.search import Hunt, Span, stream
from panel.supervisor.sources import Manner, Source, Sources
from panel.supervisor.windows import At, read_records, read_window

SGLANG = "".join(
    f"[2026-07-12 13:55:{n % 60:02} TP{n % 4} EP{n % 4}] {'KV Cache is odd' if n == 9 else 'load'}"
    f" {n}\n"
    for n in range(20)
)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def source(folder: Folder, name: str = "a", engine: str = "builtin") -> tuple[Source, Manner]:
    sources = Sources()
    found = sources.find(folder, engine, name)
    return found, sources.manner(found)


def window(folder: Folder, at: At, limit: int, name: str = "a") -> LogWindow:
    return read_window(*source(folder, name), at, limit)


def note_times(folder: Folder, pairs: list[tuple[float, int]], name: str = "a") -> None:
    text = "".join(f'{{"t": {t}, "offset": {at}}}\n' for t, at in pairs)
    folder.times(name).write_text(text)


# Windows


def test_tail_is_whole_lines(folder: Folder) -> None:
    folder.log("a").write_text("one\ntwo\nthree\nfour")

    assert window(folder, None, 12).text == "three\nfour"
    assert window(folder, None, 100).text == "one\ntwo\nthree\nfour"
    piece = window(folder, None, 10)
    assert (piece.text, piece.offset, piece.end, piece.size) == ("three\nfour", 8, 18, 18)


def test_a_line_that_grew_comes_again_whole(folder: Folder) -> None:
    log = folder.log("a")
    log.write_text("one\ntw")
    first = window(folder, 0, 100)
    assert (first.text, first.end) == ("one\ntw", 6)
    log.write_text("one\ntwo\nthree\n")

    again = window(folder, first.end, 100)

    assert (again.offset, again.text) == (4, "two\nthree\n")


def test_secrets_are_masked_with_their_length(folder: Folder) -> None:
    line = "start --api-key=sesame-sesame now\n"
    folder.log("a").write_text(line)

    piece = window(folder, 0, 1000)

    assert "sesame" not in piece.text
    assert len(piece.text) == len(line)
    (record,) = read_records(*source(folder), [0])
    assert "sesame" not in record.text


def test_bytes_that_are_no_text_keep_their_places(folder: Folder) -> None:
    rest = "next line\n" * 20
    folder.log("a").write_bytes(b"\xff\xfe broken caf\xe9\n" + rest.encode())

    piece = window(folder, 0, 1000)

    assert piece.text == "\x1a\x1a broken caf\x1a\n" + rest
    assert len(piece.text.encode()) == piece.end


_lines = st.lists(st.text(st.sampled_from("abé\x1b\r"), max_size=9), max_size=30)


@given(_lines, st.booleans(), st.integers(1, 40))
def test_windows_put_together_are_the_log(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ended: bool, limit: int
) -> None:
    folder = Folder(tmp_path_factory.mktemp("launch"))
    data = ("\n".join(lines) + "\n" * ended).encode()
    folder.log("a").write_bytes(data)
    offset, pieces = 0, []
    while offset < len(data):
        piece = window(folder, offset, limit)
        # A window that begins inside a line repeats the line from its beginning.
        assert piece.offset <= offset < piece.end <= len(data)
        pieces.append(data[offset : piece.end])
        offset = piece.end
    assert b"".join(pieces) == data


def test_a_window_behind_a_hole_says_what_is_gone(folder: Folder) -> None:
    first = "first\n" * 1000
    folder.log("a").write_bytes(first.encode() + b"\0" * 1000 + b"last\n")
    (folder.path / "a.holes").write_text('{"start": 6000, "end": 7000, "lines": 90}\n')

    before = window(folder, 0, 9000)
    behind = window(folder, before.end, 9000)

    assert (before.text, before.end, before.skipped) == (first, 6000, 0)
    assert (behind.text, behind.offset, behind.skipped) == ("last\n", 7000, 1000)
    assert window(folder, 6500, 4000).text == "last\n"


def test_a_packed_log_reads_like_a_plain_one(folder: Folder) -> None:
    text = "".join(f"line {n}\n" for n in range(5000))
    (folder.path / "a.log.gz").write_bytes(gzip.compress(text.encode()))
    sources = Sources()

    found = sources.find(folder, "builtin", "a")

    assert sources.there(folder, ["b", "a"]) == ["a"]
    assert read_window(found, Manner(), None, 10).text == "line 4999\n"
    assert read_window(found, Manner(), 0, 14).text == "line 0\nline 1\n"
    assert counted(run(Hunt([(found, Manner())], Query("line 4[0-9]*9$")))) == 111
    sources.close()


@pytest.mark.parametrize("what", ["missing", "folder", "pipe", "binary"])
def test_what_cannot_be_read_is_said(folder: Folder, what: str) -> None:
    log = folder.log("a")
    if what == "folder":
        log.mkdir()
    elif what == "pipe":
        os.mkfifo(log)
    elif what == "binary":
        log.write_bytes(bytes(range(32)) * 90)
    words = {"missing": "there is no", "folder": "is a folder", "pipe": "is a pipe",
             "binary": "is a binary file"}  # fmt: skip

    piece = window(folder, None, 100)

    assert words[what] in piece.trouble
    assert (piece.text, piece.size) == ("", 0)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=60), st.integers(0, 200), st.integers(1, 60)
)
def test_times_are_those_of_the_window(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], offset: int, limit: int
) -> None:
    folder = Folder(tmp_path_factory.mktemp("launch"))
    folder.log("a").write_bytes(b"\n" * sum(steps))
    pairs = [(float(n), at) for n, at in enumerate(itertools.accumulate([0, *steps[:-1]]))]
    note_times(folder, pairs)

    piece = window(folder, offset, limit)

    inside = [pair for pair in pairs if piece.offset < pair[1] < piece.end]
    before = [pair for pair in pairs if pair[1] <= piece.offset][-1:]
    assert list(piece.times) == before + inside


@given(st.lists(st.integers(1, 3), min_size=1, max_size=40), st.integers(0, 90))
def test_a_moment_is_found_between_the_noted_times(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], t: int
) -> None:
    folder = Folder(tmp_path_factory.mktemp("launch"))
    pairs = [(float(at), 10 * at) for at in itertools.accumulate(steps)]
    note_times(folder, pairs)

    wanted = next((at for when, at in pairs if when >= t), None)

    assert offset_at(folder.times("a"), t) == wanted


def test_a_window_at_a_moment_begins_with_the_last_line_before_it(folder: Folder) -> None:
    folder.log("a").write_text("0123456\n" * 100)
    note_times(folder, [(float(n), 8 * n) for n in range(100)])

    assert window(folder, Moment(50.5), 16).offset == 8 * 50
    assert window(folder, Moment(0.0), 16).offset == 0
    assert window(folder, Moment(999.0), 16).offset == 8 * 99


def test_a_merged_log_is_surveyed(folder: Folder) -> None:
    folder.log("engine").write_text(SGLANG)

    piece = read_window(*source(folder, "engine", "sglang"), 0, 99)

    assert piece.dialect == ("sglang",)
    records = [*read_records(*source(folder, "engine", "sglang"), [0, SGLANG.index("\n") + 1])]
    assert [(record.rank, record.text) for record in records] == [(0, "load 0"), (1, "load 1")]


def test_a_survey_is_made_again_when_more_is_known(folder: Folder) -> None:
    folder.log("engine").write_text("shell says hello\n")
    sources = Sources()
    found = sources.find(folder, "sglang", "engine")
    assert sources.manner(found).dialect.names == ("plain",)
    with folder.log("engine").open("a") as log:
        log.write(SGLANG)
    assert sources.manner(found).dialect.names == ("sglang",)


# Searches


async def take(lines: AsyncIterator[bytes]) -> list[Found]:
    return [msgspec.json.decode(line, type=Found) async for line in lines]


def run(hunt: Hunt) -> list[Found]:
    return asyncio.run(take(stream(hunt)))


def counted(found: list[Found]) -> int:
    assert found[-1].error is None
    assert found[-1].left == 0
    return sum(piece.count for piece in found)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs_search, "_FIRST_PIECE", 1000)
    monkeypatch.setattr(logs_search, "PIECE", 4000)


@pytest.mark.usefixtures("small_pieces")
def test_pieces_come_newest_first_and_join(folder: Folder) -> None:
    lines = [f"number {n} {'odd' if n % 7 == 3 else ''}\n" for n in range(3000)]
    starts = [0, *itertools.accumulate(map(len, lines))]
    for name in "ab":
        folder.log(name).write_text("".join(lines))
        note_times(folder, [(n / 10, starts[n]) for n in range(0, 3000, 10)], name)
    wanted = [n for n in range(3000) if n % 7 == 3]

    found = run(Hunt([source(folder, "a"), source(folder, "b")], Query("odd")))

    assert counted(found) == 2 * len(wanted)
    for name in "ab":
        pieces = [piece for piece in found if piece.source == name]
        assert pieces[0].end == starts[-1]
        assert all(a.start == b.end for a, b in itertools.pairwise(pieces))
        offsets = [offset for piece in reversed(pieces) for offset in piece.offsets]
        assert offsets == [starts[n] for n in wanted]
        times = [t for piece in reversed(pieces) for t, many in piece.times for _ in range(many)]
        assert times == [n // 10 for n in wanted]
    assert [piece.source for piece in found[:4]] == ["a", "b", "a", "b"]


@pytest.mark.usefixtures("small_pieces")
def test_no_more_is_listed_than_asked_for_but_all_is_counted(folder: Folder) -> None:
    folder.log("a").write_text("needle\n" * 2000)

    found = run(Hunt([source(folder)], Query("needle"), limit=500))

    assert counted(found) == 2000
    listed = [offset for piece in reversed(found) for offset in piece.offsets]
    assert listed == [7 * n for n in range(2000)][-len(listed) :]
    assert 0 < len(listed) <= 500


def test_ranks_levels_and_times_of_one_merged_log(folder: Folder) -> None:
    folder.log("engine").write_text(SGLANG)
    starts = [0, *itertools.accumulate(map(len, SGLANG.splitlines(keepends=True)))]
    note_times(folder, [(float(n), starts[n]) for n in range(20)], "engine")
    one = [source(folder, "engine", "sglang")]

    assert counted(run(Hunt(one, Query(ranks=(2,))))) == 5
    assert counted(run(Hunt(one, Query("load", invert=True)))) == 1
    assert counted(run(Hunt(one, Query(level=Level.ERROR)))) == 0
    found = run(Hunt(one, Query("load"), Span(5.0, 8.0)))
    assert sum(piece.count for piece in found) == 4


def test_a_pattern_without_end_is_an_error_line(folder: Folder) -> None:
    folder.log("a").write_text("a" * 40 + "\n")
    hunt = Hunt([source(folder)], Query("(a+)+b"), patience_s=0.2)

    found = run(hunt)

    assert found[-1].error is not None
    assert "came to no end" in found[-1].error.message


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.005)


async def test_growth_is_searched_line_by_line_until_the_log_is_another(folder: Folder) -> None:
    log = folder.log("a")
    log.write_text("needle 1\nneed")
    lines = stream(Hunt([source(folder), source(folder, "late")], Query("needle"), follows=True),
                   lambda: False)  # fmt: skip

    async def next_count() -> int:
        async with asyncio.timeout(20):
            while True:
                piece = msgspec.json.decode(await anext(lines), type=Found)
                assert piece.error is None
                if piece.count:
                    return piece.count

    assert await next_count() == 1
    with log.open("a") as file:
        file.write("le 2\nneedle 3\n")
    assert await next_count() == 2
    folder.log("late").write_text("needle 4\n")
    assert await next_count() == 1
    log.write_text("short\n")
    async with asyncio.timeout(20):
        rest = [msgspec.json.decode(line, type=Found) async for line in lines]
    assert rest[-1].error is not None
    assert rest[-1].error.kind == "replaced"


async def test_letting_go_ends_the_workers_inside_a_pattern(folder: Folder) -> None:
    folder.log("a").write_text("a" * 40 + "\n")
    me = psutil.Process()
    before = {child.pid for child in me.children()}

    def workers() -> list[psutil.Process]:
        return [child for child in me.children() if child.pid not in before]

    task = asyncio.create_task(take(stream(Hunt([source(folder)], Query("(a+)+b")))))
    await until(workers)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until(lambda: not workers())


async def test_a_following_search_ends_with_the_supervisor(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    folder.log("a").write_text("needle\n")
    ends = iter([False, False, True])
    hunt = Hunt([source(folder)], Query("needle"), follows=True)

    async with asyncio.timeout(20):
        found = await take(stream(hunt, lambda: next(ends)))

    assert counted(found) == 1
