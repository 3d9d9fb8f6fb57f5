"""The log model: whatever the order of growth and reading, it holds what the logs hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panel.domain.wire import LogWindow
from panel.logs.merge import place
from panel.widgets import log_model
from panel.widgets.log_model import LogModel


class Log:
    """One growing log, and windows into it as the supervisor gives them."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.data = b""
        self.times: list[tuple[float, int]] = []

    def write(self, t: float, text: str) -> None:
        self.times.append((t, len(self.data)))
        self.data += text.encode()

    def window(self, at: int | str, limit: int) -> LogWindow:
        size = len(self.data)
        if isinstance(at, str):
            start = max(size - limit, 0)
            if start and self.data[start - 1 : start] != b"\n":
                start = self.data.find(b"\n", start) + 1 or start
        else:
            newline = self.data.rfind(b"\n", max(at - 32, 0), at)
            start = newline + 1 if newline >= 0 or at <= 32 else at
            start = at if at == size else start
        end = min(start + limit, size)
        if end < size:
            end = self.data.rfind(b"\n", start, end) + 1 or end
        text = self.data[start:end].decode(errors="replace")
        return LogWindow(source=self.source, offset=start, end=end, size=size, text=text,
                         times=tuple(self.times))  # fmt: skip


def read(model: LogModel, logs: list[Log], tail: int = 1 << 20, limit: int = 1 << 20) -> None:
    wanted = model.wanted({log.source: len(log.data) for log in logs}, tail)
    by_name = {log.source: log for log in logs}
    model.add(by_name[name].window(at, limit) for name, at in wanted.items())


def texts(model: LogModel) -> list[str]:
    return [record.text for record in model.visible]


PIECES = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from(["a\n", "needle\n", "half", "é\n", "x\ny\n", "\n"])
    ),
    max_size=30,
)  # fmt: skip


@given(PIECES, st.data())
@settings(max_examples=150, deadline=None)
def test_reading_at_any_moment_ends_in_the_same_records(
    pieces: list[tuple[int, str]], data: st.DataObject
) -> None:
    logs = [Log(f"rank-{rank}") for rank in range(3)]
    model = LogModel()
    model.search("needle")
    for t, (which, text) in enumerate(pieces):
        logs[which].write(float(t), text)
        if data.draw(st.booleans()):
            read(model, logs)
    read(model, logs)
    for log in logs:
        lines = log.data.decode().split("\n")
        held = [record.text for record in model.records if record.source == log.source]
        assert held == (lines[:-1] if lines[-1] == "" else lines)
    assert model.records == sorted(model.records, key=place)
    assert model.visible == model.records
    assert model.hits == [i for i, r in enumerate(model.visible) if "needle" in r.text]


@given(PIECES, st.sets(st.integers(0, 2)))
@settings(deadline=None)
def test_picking_filters_and_finds_the_same_in_any_order(
    pieces: list[tuple[int, str]], ranks: set[int]
) -> None:
    logs = [Log(f"rank-{rank}") for rank in range(3)]
    picked = frozenset(f"rank-{rank}" for rank in ranks)
    before, after = LogModel(picked=picked), LogModel()
    before.search("needle")
    for t, (which, text) in enumerate(pieces):
        logs[which].write(float(t), text)
        read(before, logs)
    read(after, logs)
    after.pick(picked)
    after.search("NEEDLE")
    assert before.visible == after.visible
    assert before.hits == after.hits
    assert all(not picked or record.source in picked for record in after.visible)


def test_sources_are_merged_by_arrival_not_by_reading() -> None:
    first, second = Log("rank-0"), Log("rank-1")
    first.write(1.0, "one\n")
    first.write(3.0, "three\n")
    model = LogModel()
    read(model, [first, second])
    second.write(2.0, "two\n")
    read(model, [first, second])
    assert texts(model) == ["one", "two", "three"]


def test_it_starts_with_the_tail_and_takes_older_text_in_front() -> None:
    logs = [Log("rank-0"), Log("rank-1")]
    for number in range(200):
        for log in logs:
            log.write(float(number), f"line {number:04}\n")
    model = LogModel()
    read(model, logs, tail=500, limit=500)
    assert texts(model)[0] == "line 0150"
    while wanted := model.older(700):
        by_name = {log.source: log for log in logs}
        model.prepend(by_name[name].window(at, 1400) for name, at in wanted.items())
        assert model.records == sorted(model.records, key=place)
    assert texts(model) == [f"line {number:04}" for number in range(200) for _ in logs]


def test_growth_beyond_the_tail_starts_again_at_the_tail() -> None:
    log = Log("rank-0")
    log.write(0.0, "old\n")
    model = LogModel()
    read(model, [log], tail=100, limit=100)
    log.write(1.0, "new line\n" * 50)
    read(model, [log], tail=100, limit=100)
    assert set(texts(model)) == {"new line"}
    assert len(model.visible) == 11
    assert model.older(1000) == {"rank-0": 0}


def test_a_line_longer_than_a_window_does_not_stop_the_reading() -> None:
    log = Log("rank-0")
    log.write(0.0, "start\n")
    model = LogModel()
    read(model, [log], limit=64)
    log.write(1.0, "x" * 200 + "\nend\n")
    for _ in range(10):
        read(model, [log], limit=64)
    assert texts(model)[-1] == "end"
    assert model.wanted({"rank-0": len(log.data)}, 1000) == {}


def test_it_forgets_the_oldest_and_can_ask_for_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_model, "MOST", 100)
    log = Log("rank-0")
    model = LogModel()
    for number in range(300):
        log.write(float(number), f"{number}\n")
        read(model, [log])
    assert 100 <= len(model.records) < 110
    assert texts(model)[-1] == "299"
    assert model.older(10_000) == {"rank-0": 0}
    model.prepend([log.window(0, 10_000)])
    assert texts(model) == [str(number) for number in range(300)]


def test_clear_forgets_records_but_not_what_is_picked() -> None:
    log = Log("rank-0")
    log.write(0.0, "a needle\n")
    model = LogModel()
    model.pick(frozenset({"rank-0"}))
    model.search("needle")
    read(model, [log])
    model.clear()
    assert (model.records, model.visible, model.hits) == ([], [], [])
    read(model, [log])
    assert (texts(model), model.hits) == (["a needle"], [0])
