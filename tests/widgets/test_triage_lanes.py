"""Lanes: who is root and who victim, and strips whose columns stand still."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.domain.flags import Request
from panel.domain.snapshot import LaunchView, ProcessExit, ProcessView
from panel.domain.states import LaunchState, ProcessState
from panel.domain.verdict import Verdict
from panel.logs.records import Level, Record
from panel.widgets.glyphs import ASCII, UNICODE
from panel.widgets.spans import cells
from panel.widgets.triage_lanes import Lane, Lanes, lane_rows, lanes_of


def process(
    rank: int | None, source: str = "", code: int | None = None, **more: Any
) -> ProcessView:
    """Return a process; with a code it ended at second 10 plus its rank."""
    gone = None if code is None else ProcessExit(t=10.0 + (rank or 0), code=code, words="gone")
    usual: dict[str, Any] = {
        "rank": rank, "source": source or f"rank-{rank}", "pid": 1, "exit": gone,
        "state": ProcessState.SERVING if code is None else ProcessState.FAILED,
    }  # fmt: skip
    return ProcessView(**(usual | more))


def launch(*processes: ProcessView, t: float = 20.0) -> LaunchView:
    return LaunchView(
        id=1, uuid="u", request=Request(profile="tiny"), engine="builtin", version="1",
        state=LaunchState.CRASHED, world_size=2, t0_unix=0.0, t=t, url="", processes=processes,
    )  # fmt: skip


def record(rank: int, t: float, text: str, level: Level = Level.ERROR) -> Record:
    return Record(source=f"rank-{rank}", rank=rank, t=t, printed=None, level=level, prefix="",
                  text=text, offset=int(1000 * t), phase=None)  # fmt: skip


def crashed(**more: Any) -> Verdict:
    return Verdict(status="crashed", headline="h", **({"root_ranks": (1,), "t_first": 9.5} | more))


def test_first_error_of_a_victim_is_its_symptom_and_older_ones_are_not() -> None:
    tails = [
        record(0, 2.0, "an error that it survived"),
        record(0, 9.6, "rank 1 is gone"),
        record(0, 9.7, "giving up"),
        record(0, 9.4, "well", Level.INFO),
    ]
    found = lanes_of(
        launch(process(0, code=13), process(1, code=1)),
        crashed(secondary={"0": "victim_gloo"}),
        sorted(tails, key=lambda one: one.t),
    )

    assert found.lanes == (
        Lane("0", "victim", 9.6, 10.0, "rank 1 is gone"),
        Lane("1", "root", 9.5, 11.0, "gone"),
    )
    assert (found.begin, found.last) == (9.5, 11.0)


def test_an_exception_is_told_by_its_first_link() -> None:
    chain = (
        "Traceback (most recent call last):", '  File "a.py", line 1, in f', "    x",
        "KeyError: 'expert'", "",
        "During handling of the above exception, another exception occurred:", "",
        "Traceback (most recent call last):", '  File "b.py", line 2, in g', "    y",
        "RuntimeError: wrapper",
    )  # fmt: skip
    tails = [record(1, 9.5 + n / 1000, text) for n, text in enumerate(chain)]
    (lane,) = lanes_of(launch(process(1, code=1)), crashed(), tails).lanes

    assert lane.words == "KeyError: 'expert', gone"


def test_what_only_lives_or_was_stopped_has_no_symptom() -> None:
    stopped = process(0, code=0, state=ProcessState.STOPPED)
    found = lanes_of(
        launch(stopped, process(1, code=1), process(2), process(None, "frontend")),
        crashed(secondary={"0": "killed_by_gang_stop"}),
        (),
    )

    assert [(lane.name, lane.label, lane.symptom) for lane in found.lanes] == [
        ("0", "stopped", None), ("1", "root", 9.5), ("2", "", None),
    ]  # fmt: skip
    assert found.last == 20.0


def test_a_hanging_rank_is_silent_since_its_last_beat() -> None:
    stale = process(0, state=ProcessState.STALE, beat_age=6.0)
    root = process(1, state=ProcessState.STALE, beat_age=7.5)
    verdict = Verdict(status="hung", headline="h", root_ranks=(1,), t_first=12.5)
    found = lanes_of(launch(stale, root), verdict, ())

    assert found.lanes == (
        Lane("0", "", 14.0, None, "no heartbeat for 6.0s"),
        Lane("1", "root", 12.5, None, "no heartbeat for 7.5s"),
    )


def test_all_ranks_may_be_to_blame() -> None:
    found = lanes_of(launch(process(0, code=1), process(1, code=1)), crashed(root_ranks="all"), ())
    assert [lane.label for lane in found.lanes] == ["root", "root"]


TIMES = st.none() | st.floats(0, 3600, allow_nan=False)
LANES = st.lists(
    st.builds(Lane, st.sampled_from(["0", "11", "frontend"]),
              st.sampled_from(["root", "victim", ""]), TIMES, TIMES,
              st.text("xy ", max_size=200)),
    max_size=8,
)  # fmt: skip


@given(LANES, st.floats(0, 100), st.floats(0, 3600), st.sampled_from([79, 99, 119, 199]))
def test_rows_fit_and_their_columns_stand_still(
    lanes: list[Lane], begin: float, took: float, width: int
) -> None:
    rows = lane_rows(Lanes(tuple(lanes), begin, begin + took), width, UNICODE)

    assert len(rows) == len(lanes)
    assert all(cells(row) <= width for row in rows)
    assert len({cells(row[:-1]) for row in rows}) <= 1


@pytest.mark.parametrize(("glyphs", "strip"), [(UNICODE, "▁▁▁✖"), (ASCII, "___X")])
def test_signs_are_readable_without_colour(glyphs: Any, strip: str) -> None:
    lanes = Lanes((Lane("3", "root", 5.0, 7.0, ""),), 5.0, 7.0)
    (row,) = lane_rows(lanes, 79, glyphs)
    text = "".join(span.text for span in row)

    assert text.startswith(f" 3 {strip}....")
    assert ".x " in text
