"""Errors are counted by record: a traceback is one, however many lines it has."""

from __future__ import annotations

import pytest

from panel.logs.grammars import Dialect, detect
from panel.logs.grammars.builtin import BUILTIN
from panel.logs.query import Query
from panel.logs.records import Level
from panel.logs.scan import Scanner

ERRORS = Query(level=Level.ERROR, heads=True)
TRACEBACK = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    go()",
             "    ^^^^", '  File "b.py", line 2, in go', "    stop()",
             "ValueError: bad"]  # fmt: skip


def heads(lines: list[str], dialect: Dialect, rank: int | None = None) -> list[str]:
    data = "".join(f"{line}\n" for line in lines).encode()
    offsets = Scanner(ERRORS, dialect, rank).scan(data, 0)
    return [data[start:].split(b"\n")[0].decode() for start in offsets]


def ours(level: str, *texts: str) -> list[str]:
    return [f"[2026-11-30 12:00:00.000 TP3 serving] {level} {text}" for text in texts]


def test_a_traceback_with_prefixes_is_one_error() -> None:
    lines = [
        *ours("ERROR", "one alone", "another"),
        *ours("INFO", "between"),
        *ours("ERROR", *TRACEBACK, "", *TRACEBACK, "told after it"),
    ]
    found = heads(lines, Dialect(BUILTIN), 3)
    assert [line.partition(" ERROR ")[2] for line in found] == [
        "one alone", "another", TRACEBACK[0], TRACEBACK[0], "told after it",
    ]  # fmt: skip


def test_what_is_chained_is_one_error() -> None:
    link = "During handling of the above exception, another exception occurred:"
    lines = ours("ERROR", *TRACEBACK, "", link, "", *TRACEBACK)
    assert len(heads(lines, Dialect(BUILTIN), 3)) == 1


@pytest.mark.parametrize("ahead", ["[2026-01-31 12:00:00 TP0] ", "[2026-01-31 12:00:00 TP0 EP0] "])
def test_lines_without_a_prefix_belong_to_the_record_before(ahead: str) -> None:
    said = [f"{ahead}Load weight end.", f"{ahead}Scheduler hit an exception: {TRACEBACK[0]}"]
    lines = [*said, *TRACEBACK[1:], "", f"{ahead}Load weight begin.", *TRACEBACK]
    assert heads(lines, detect(lines)) == [said[1], TRACEBACK[0]]


def test_ranks_that_speak_at_once_have_one_error_each() -> None:
    lines = [f"[2026-01-31 12:00:00 TP{rank}] {text}" for text in TRACEBACK for rank in range(4)]
    assert len(heads(lines, detect(lines))) == 4
