"""What the node screen says of drafts."""

from __future__ import annotations

import msgspec
import pytest

from panel.domain.snapshot import Metrics, Speculation
from panel.widgets.spans import Row, Tone, cells
from panel.widgets.speculation_rows import pane, verdict

SPECULATION = Speculation(
    drafts=3,
    break_even=1.7,
    accepted=(0.78, 0.55, 0.38),
    cycle_ms={"extend": 0.1, "draft": 3.2, "verify": 6.1},
    collectives=20,
    collective_ms=2.1,
)


def metrics(acceptance: float = 2.6, **changed: object) -> Metrics:
    found = msgspec.structs.replace(SPECULATION, **changed)
    return Metrics(acceptance=acceptance, speculation=found)


def text(rows: list[Row]) -> list[str]:
    return ["".join(span.text for span in row) for row in rows]


def test_whether_it_pays() -> None:
    assert text([verdict(metrics())]) == [" accept 2.6 (pays >1.7)"]
    assert verdict(metrics())[1].tone is Tone.GOOD
    assert verdict(metrics(1.4))[1].tone is Tone.WARN
    assert text([verdict(metrics(break_even=None))]) == [" accept 2.6 (pays >?)"]
    assert verdict(metrics(break_even=None))[1].tone is Tone.PLAIN
    assert text([verdict(metrics(simulated=0.8))]) == [" accept 2.6 SIMULATED"]
    assert text([verdict(Metrics(acceptance=2.51))]) == [" accept 2.5"]
    assert verdict(Metrics()) == ()


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_parts_of_a_cycle_fit_one_line(width: int) -> None:
    (row,) = pane(metrics(), width)
    assert cells(row) <= width
    line = "".join(span.text for span in row)
    assert line.startswith(" drafts 3  accepted 78% 55% 38%  extend 0.1  draft 3.2  verify 6.1 ms")
    assert ("collectives 20 in 2.1 ms a step" in line) == (width >= 100)


def test_states_that_need_a_word() -> None:
    assert "0: do not pay now" in text(pane(metrics(drafts=0), 80))[0]
    assert "SIMULATED at 0.8" in text(pane(metrics(simulated=0.8), 80))[0]
    alarm = pane(metrics(1.1, fell_from=2.6), 80)[1:]
    assert " ".join(" ".join(text(alarm)).split()).startswith(
        "! acceptance fell from 2.6 tokens a cycle to 1.1"
    )
    assert all(cells(row) <= 80 for row in alarm)
    assert pane(None, 80) == pane(Metrics(acceptance=2.0), 80) == []
