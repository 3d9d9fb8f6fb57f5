from __future__ import annotations

import re

import pytest

from panel.logs.decode import decode
from panel.logs.merge import Arrivals
from panel.logs.records import Grammar, Level, Prefix, Record, RecordReader, builtin, rank_of

HEAD = "[2026-01-31 12:00:00.123 TP3 EP3 capture] "


def read(source: str, text: str) -> list[Record]:
    return RecordReader(source, Arrivals([(1.5, 0)])).read(decode(text.encode()))


@pytest.mark.parametrize(
    ("line", "prefix"),
    [
        (HEAD + "INFO x", (Level.INFO, 3, "capture")),
        ("[2026-01-31 12:00:00.123 TP12 serving] WARNING x", (Level.WARNING, 12, "serving")),
        ("[2026-01-31 12:00:00.123 API] ERROR", (Level.ERROR, None, None)),
        ("[2026-01-31 12:00:00.123 API kv_cache] CRITICAL x", (Level.ERROR, None, "kv_cache")),
        ("[2026-01-31 12:00:00.123] DEBUG x", (Level.DEBUG, None, None)),
    ],
)
def test_builtin_grammar(line: str, prefix: tuple[Level, int | None, str | None]) -> None:
    found = builtin(line)
    assert found is not None
    assert (found.level, found.rank, found.phase) == prefix
    assert found.printed == "2026-01-31 12:00:00.123"
    assert line[found.end :] in ("x", "")


@pytest.mark.parametrize(
    "line", ["", "text", "[2026-01-31 12:00:00 TP3] old style", "[INFO] x", f" {HEAD}INFO x"]
)
def test_lines_without_prefix(line: str) -> None:
    assert builtin(line) is None


def test_record_holds_the_whole_line() -> None:
    (record,) = read("rank-3", HEAD + "INFO bucket 4 of 8\n")
    assert (record.text, record.line) == ("bucket 4 of 8", HEAD + "INFO bucket 4 of 8")
    assert (record.source, record.rank, record.t, record.phase) == ("rank-3", 3, 1.5, "capture")


def test_continuation_keeps_level_and_phase() -> None:
    _, bare, *_ = read("rank-3", HEAD + "WARNING first\n  more\n")
    assert (bare.level, bare.phase, bare.prefix, bare.printed) == (
        Level.WARNING, "capture", "", None,
    )  # fmt: skip
    assert bare.offset == len(HEAD + "WARNING first\n")


def test_bare_traceback_is_an_error_until_the_next_prefix() -> None:
    levels = [
        record.level
        for record in read(
            "rank-0",
            f"before\nTraceback (most recent call last):\n  File x\nKeyError: 1\n{HEAD}INFO on\n",
        )
    ]
    assert levels == [Level.INFO, Level.ERROR, Level.ERROR, Level.ERROR, Level.INFO]


def test_state_lasts_over_chunks() -> None:
    reader = RecordReader("engine", Arrivals())
    reader.read(decode(HEAD.encode() + b"ERROR first\n"))
    (record,) = reader.read(decode(b"second\n", 70))
    assert (record.level, record.rank, record.offset) == (Level.ERROR, 3, 70)


def test_another_grammar() -> None:
    def shouting(line: str) -> Prefix | None:
        return Prefix(4, "now", Level.ERROR, 7, None) if line.startswith("!!! ") else None

    grammar = Grammar("shouting", shouting, re.compile("!!! "))
    first, second = RecordReader("engine", Arrivals(), grammar).read(decode(b"quiet\n!!! loud\n"))
    assert (first.level, first.rank, second.level, second.rank) == (
        Level.INFO, None, Level.ERROR, 7,
    )  # fmt: skip
    assert second.text == "loud"


@pytest.mark.parametrize(
    ("source", "rank"), [("rank-0", 0), ("rank-12", 12), ("frontend", None), ("rank-x", None)]
)
def test_rank_of(source: str, rank: int | None) -> None:
    assert rank_of(source) == rank
