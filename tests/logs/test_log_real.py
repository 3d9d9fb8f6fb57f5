"""Captures of real launches, which are not part of this repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from panel.logs.decode import decode
from panel.logs.merge import Arrivals
from panel.logs.query import Query
from panel.logs.records import Level, Record, RecordReader, survey
from panel.logs.scan import Scanner

FOLDER = Path(
    os.environ.get("MOEPANEL_REALLOGS", Path(__file__).parents[3] / "shared" / "reallogs")
)
LAUNCHES = sorted(path.parent.name for path in FOLDER.glob("*/engine.log"))

if not LAUNCHES:
    pytest.skip("no captures: MOEPANEL_REALLOGS names their folder", allow_module_level=True)


def records_of(launch: str) -> list[Record]:
    log = (FOLDER / launch / "engine.log").read_bytes()
    dialect, ranks = survey("engine", log)
    return RecordReader("engine", Arrivals(), dialect, ranks).read(decode(log))


@pytest.mark.parametrize("launch", LAUNCHES)
def test_engine_and_ranks_are_recognised(launch: str) -> None:
    log = (FOLDER / launch / "engine.log").read_bytes()
    dialect, _ = survey("engine", log)
    if b"Started server process" not in log:
        pytest.skip("this launch ended before the engine began")
    assert dialect.names == (launch.partition("-")[0],)
    assert {record.rank for record in records_of(launch)} == {None, 0, 1}


@pytest.mark.parametrize("launch", LAUNCHES)
def test_failed_launches_have_errors_and_clean_ones_none(launch: str) -> None:
    errors = [record for record in records_of(launch) if record.level is Level.ERROR]
    quiet = ("clean", "stop_cont", "kill_api")
    assert bool(errors) is not any(word in launch for word in quiet)


@pytest.mark.parametrize("launch", LAUNCHES)
def test_a_search_for_errors_finds_those_of_a_whole_reading(launch: str) -> None:
    log = (FOLDER / launch / "engine.log").read_bytes()
    dialect, ranks = survey("engine", log)
    for level in (Level.WARNING, Level.ERROR):
        wanted = {record.offset for record in records_of(launch) if record.level >= level}
        assert set(Scanner(Query(level=level), dialect, ranks=ranks).scan(log, 0)) == wanted


@pytest.mark.parametrize("launch", LAUNCHES)
def test_no_bar_keeps_a_record_to_itself(launch: str) -> None:
    for record in records_of(launch):
        assert "it/s][20" not in record.text
        assert "it/s](Worker" not in record.text
