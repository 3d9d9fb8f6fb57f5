"""Which path takes which sums, and the file that keeps what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.server.sum_table import SumTable, Timing, measured_rows, read_table, write_table

TABLE = SumTable(
    (
        Timing(1, "peer", 4.0),
        Timing(1, "nccl", 20.0),
        Timing(128, "peer", 30.0),
        Timing(128, "nccl", 25.0),
        Timing(8192, "nccl", 200.0),
    )
)


@pytest.mark.parametrize(
    ("rows", "path"), [(1, "peer"), (2, "nccl"), (128, "nccl"), (129, "nccl"), (9000, "nccl")]
)
def test_a_size_goes_like_the_next_one_that_was_measured(rows: int, path: str) -> None:
    assert TABLE.path(rows) == path


def test_in_words() -> None:
    assert TABLE.lines(4096)[:2] == [
        "sums of 4096 B: peer 4.0 us, nccl 20.0 us",
        "sums of 524288 B: nccl 25.0 us, peer 30.0 us",
    ]


timings = st.builds(
    Timing, st.integers(1, 10_000), st.sampled_from(["peer", "nccl"]), st.floats(0.1, 1e6)
)


@given(st.lists(timings, min_size=1, unique_by=lambda t: (t.rows, t.path)), st.integers(1, 20_000))
def test_the_choice_is_the_fastest_of_its_size(found: list[Timing], rows: int) -> None:
    path = SumTable(tuple(found)).path(rows)
    size = min((t.rows for t in found if t.rows >= rows), default=max(t.rows for t in found))
    there = {t.path: t.us for t in found if t.rows == size}
    assert there[path] == min(there.values())


@given(st.integers(1, 512), st.integers(0, 16), st.integers(16, 16384), st.integers(1, 4096))
def test_measured_sizes_have_both_ends(decode: int, drafts: int, chunk: int, most: int) -> None:
    verify = decode * (1 + drafts)
    sizes = measured_rows(decode, verify, chunk, most)
    assert sizes == tuple(sorted(set(sizes)))
    assert {1, decode, verify, chunk, min(most, verify)} <= set(sizes)
    assert max(sizes) <= chunk + verify
    # No sum of a path for small sums falls to a size beyond that path's end.
    assert all(
        min(size for size in sizes if size >= rows) <= most for rows in (1, min(most, verify))
    )


def test_a_table_is_kept_beside_others(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "collectives.json"
    other = SumTable((Timing(1, "nccl", 1.5),))
    write_table(file, "one", TABLE)
    write_table(file, "two", other)
    assert read_table(file, "one", ["peer", "nccl"]) == TABLE
    assert read_table(file, "two", ["nccl"]) == other
    assert read_table(file, "three", ["nccl"]) is None
    assert [path.name for path in file.parent.iterdir()] == ["collectives.json"]


def test_a_path_that_is_not_there_makes_a_table_useless(tmp_path: Path) -> None:
    file = tmp_path / "collectives.json"
    write_table(file, "one", TABLE)
    assert read_table(file, "one", ["nccl"]) is None


@pytest.mark.parametrize("text", ["", "[]", '{"one": 3}', '{"one": [[1, "nccl"]]}', '{"one": []}'])
def test_a_file_of_something_else_is_no_table(text: str, tmp_path: Path) -> None:
    file = tmp_path / "collectives.json"
    file.write_text(text)
    assert read_table(file, "one", ["nccl"]) is None


def test_an_operator_may_take_a_line_out(tmp_path: Path) -> None:
    file = tmp_path / "collectives.json"
    write_table(file, "one", TABLE)
    tables = json.loads(file.read_text())
    tables["one"] = [line for line in tables["one"] if line[:2] != [1, "peer"]]
    file.write_text(json.dumps(tables))
    found = read_table(file, "one", ["peer", "nccl"])
    assert found is not None
    assert found.path(1) == "nccl"


def test_a_folder_that_cannot_be_written_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").write_text("")
    write_table(tmp_path / "taken" / "collectives.json", "one", TABLE)
    assert "not kept" in caplog.text
