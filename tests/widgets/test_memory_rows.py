"""The memory of a plan on the launch screen."""

from __future__ import annotations

from panel.domain.flags import Request
from panel.domain.plan import Fit, Memory, Plan
from panel.widgets.glyphs import UNICODE
from panel.widgets.launch_rows import page
from panel.widgets.spans import Row

LINES = (
    Memory(category="weights", predicted=60 << 30),
    Memory(category="KV cache", predicted=10 << 30),
)
FIT = Fit(total=80 << 30, estimated=True, kv_tokens=1, after_weights=20 << 30, left=10 << 30)


def text_of(row: Row) -> str:
    return "".join(span.text for span in row)


def rows(fit: Fit | None) -> str:
    plan = Plan(
        request=Request(profile="p"),
        engine="sglang",
        version="1",
        world_size=8,
        flags=(),
        argv=(),
        memory=LINES,
        fit=fit,
    )
    found = page(plan, [], None, "", 80, UNICODE).rows
    assert all(len(text_of(row)) <= 80 for row in found)
    return "\n".join(text_of(row) for row in found)


def test_a_known_gpu_is_shown_as_a_bar_with_its_letters() -> None:
    text = rows(FIT)

    assert "W weights 60.0G" in text
    assert "K KV cache 10.0G" in text
    bar = text[text.index("[W") + 1 :].partition("]")[0]
    assert len(bar) == 65
    assert (bar.count("W"), bar.count("K")) == (49, 8)


def test_without_one_there_are_only_figures() -> None:
    text = rows(None)

    assert "weights 60.0G" in text
    assert "[W" not in text
