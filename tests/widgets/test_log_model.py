"""The log model: whatever the order of growth and reading, it holds what the logs hold."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panel.domain.wire import LogWindow, Moment
from panel.logs.merge import place
from panel.widgets import log_model
from panel.widgets.log_model import At, LogModel


class Log:
    """One growing log, and windows into it as the supervisor gives them."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.file = 1
        self.data = b""
        self.times: list[tuple[float, int]] = []

    def write(self, t: float, text: str) -> None:
        self.times.append((t, len(self.data)))
        self.data += text.encode()

    def window(self, at: At, limit: int) -> LogWindow:
        size = len(self.data)
        if isinstance(at, Moment):
            at = max(next((o for t, o in self.times if t >= at.t), size) - 1, 0)
        if at == "tail":
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
                         times=tuple(self.times), file=self.file)  # fmt: skip


def read(model: LogModel, logs: list[Log], tail: int = 1 << 20, limit: int = 1 << 20) -> None:
    wanted = model.wanted({log.source: len(log.data) for log in logs}, tail)
    by_name = {log.source: log for log in logs}
    model.add(by_name[name].window(at, limit) for name, at in wanted.items())


def texts(model: LogModel) -> list[str]:
    return [record.text for record in model.complete]


def serve(logs: list[Log], wanted: Mapping[str, At], limit: int) -> list[LogWindow]:
    by_name = {log.source: log for log in logs}
    return [by_name[name].window(at, limit) for name, at in wanted.items()]


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
    assert model.complete == model.records


def test_sources_are_merged_by_arrival_not_by_reading() -> None:
    first, second = Log("rank-0"), Log("rank-1")
    first.write(1.0, "one\n")
    first.write(3.0, "three\n")
    model = LogModel()
    read(model, [first, second])
    second.write(2.0, "two\n")
    read(model, [first, second])
    assert texts(model) == ["one", "two", "three"]


def eight_lines(numbers: int) -> tuple[list[Log], list[str]]:
    """Two logs, of which the second says four times as much; and all lines in order."""
    logs = [Log("rank-0"), Log("rank-1")]
    said = []
    for number in range(numbers):
        for log, times in zip(logs, (1, 4), strict=True):
            for part in range(times):
                text = f"{log.source} {number:04} {part}"
                log.write(float(number), text + "\n")
                said.append(text)
    return logs, said


def test_older_text_comes_in_front_and_no_line_is_missing_between() -> None:
    logs, said = eight_lines(200)
    model = LogModel()
    read(model, logs, tail=900, limit=900)
    assert texts(model) == said[-len(texts(model)) :]
    assert len(texts(model)) < len(model.records)
    while wanted := model.older(700):
        model.prepend(serve(logs, wanted, 1400))
        assert texts(model) == said[-len(texts(model)) :]
    assert texts(model) == said


def test_newer_text_comes_behind_and_no_line_is_missing_between() -> None:
    logs, said = eight_lines(200)
    model = LogModel()
    model.add(serve(logs, {"rank-0": 0, "rank-1": 0}, 900))
    assert texts(model) == said[: len(texts(model))]
    assert model.behind == sum(len(log.data) for log in logs) - sum(
        len(record.text) + 1 for record in model.records
    )
    while wanted := model.newer():
        model.add(serve(logs, wanted, 900))
        assert texts(model) == said[: len(texts(model))]
    assert texts(model) == said


def test_the_middle_is_complete_at_both_ends() -> None:
    logs, said = eight_lines(300)
    model = LogModel()
    model.add(serve(logs, {"rank-0": Moment(150.0), "rank-1": Moment(150.0)}, 1200))
    start = said.index(texts(model)[0])
    assert texts(model) == said[start : start + len(texts(model))]
    assert "rank-0 0150 0" in texts(model)


def test_only_what_is_picked_keeps_others_waiting() -> None:
    logs, said = eight_lines(200)
    model = LogModel()
    read(model, logs, tail=900, limit=900)
    model.picked = frozenset({0})
    held = [text for text in texts(model) if text.startswith("rank-0")]
    assert len(held) > 20
    assert held == [text for text in said if text.startswith("rank-0")][-len(held) :]
    assert set(model.older(100)) == {"rank-0"}


def test_growth_beyond_the_tail_starts_again_at_the_tail() -> None:
    log = Log("rank-0")
    log.write(0.0, "old\n")
    model = LogModel()
    read(model, [log], tail=100, limit=100)
    log.write(1.0, "new line\n" * 50)
    read(model, [log], tail=100, limit=100)
    assert set(texts(model)) == {"new line"}
    assert len(texts(model)) == 11
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


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_model, "MOST", 100)


@pytest.mark.usefixtures("small")
def test_it_forgets_the_oldest_and_can_ask_for_them_again() -> None:
    logs, said = eight_lines(100)
    growing = [Log(log.source) for log in logs]
    model = LogModel()
    for number in range(100):
        for log, whole in zip(growing, logs, strict=True):
            for text in whole.data.decode().splitlines(keepends=True):
                if text.split()[1] == f"{number:04}":
                    log.write(float(number), text)
        read(model, growing)
    assert 100 <= len(model.records) <= 110
    assert texts(model) == said[-len(texts(model)) :]
    model.prepend(serve(growing, model.older(300), 600))
    assert texts(model) == said[said.index(texts(model)[0]) :][: len(texts(model))]


@pytest.mark.usefixtures("small")
def test_looking_back_forgets_the_newest_and_can_ask_for_them_again() -> None:
    logs, said = eight_lines(100)
    model = LogModel()
    read(model, logs, tail=2000, limit=2000)
    while wanted := model.older(400):
        model.prepend(serve(logs, wanted, 800))
        first = said.index(texts(model)[0])
        assert texts(model) == said[first : first + len(texts(model))]
        assert len(model.records) <= 110
    assert texts(model)[0] == said[0]
    while wanted := model.newer():
        model.add(serve(logs, wanted, 400))
        first = said.index(texts(model)[0])
        assert texts(model) == said[first : first + len(texts(model))]
    assert texts(model)[-1] == said[-1]


def test_a_log_that_is_another_one_is_read_anew_with_a_note() -> None:
    log = Log("rank-0")
    log.write(0.0, "old and long enough\n")
    model = LogModel()
    read(model, [log])
    log.data, log.times = b"", []
    log.write(1.0, "new\n")
    read(model, [log])
    assert texts(model) == ["new"]
    assert "another one" in model.notes["rank-0"]
    log.file = 7
    log.write(2.0, "longer\n")
    read(model, [log])
    assert texts(model) == ["longer"]
    model.prepend(serve([log], model.older(100), 200))
    assert texts(model) == ["new", "longer"]


def test_trouble_is_kept_in_words_and_costs_nothing_that_was_read() -> None:
    log = Log("rank-0")
    log.write(0.0, "one\n")
    model = LogModel()
    read(model, [log])
    model.grown({})
    assert "lost its log" in model.notes["rank-0"]
    trouble = LogWindow(source="rank-0", offset=0, end=0, size=0, text="", trouble="no permission")
    model.add([trouble])
    assert model.notes == {"rank-0": "no permission"}
    assert texts(model) == ["one"]
    log.write(1.0, "two\n")
    read(model, [log])
    assert (texts(model), model.notes) == (["one", "two"], {})


def test_a_hole_is_a_line_of_its_own() -> None:
    model = LogModel()
    model.add([LogWindow(source="rank-0", offset=0, end=4, size=2104, text="one\n")])
    model.add([LogWindow(source="rank-0", offset=2100, end=2104, size=2104, text="two\n",
                         skipped=2096)])  # fmt: skip
    assert texts(model) == ["one", "2K are gone here: the log grew too long to keep", "two"]


def test_a_merged_log_is_read_in_its_dialect() -> None:
    text = "[2026-07-12 13:55:29 TP3 EP3] load\n[2026-07-12 13:55:29 TP1 EP1] load\n"
    model = LogModel()
    model.add([LogWindow(source="engine", offset=0, end=len(text), size=len(text), text=text,
                         dialect=("sglang",))])  # fmt: skip
    assert [record.rank for record in model.complete] == [3, 1]
    model.picked = frozenset({3})
    assert model.older(10) == {}


def test_clear_forgets_records_but_not_what_is_picked() -> None:
    log = Log("rank-0")
    log.write(0.0, "a needle\n")
    model = LogModel(picked=frozenset({0}))
    read(model, [log])
    model.clear()
    assert (model.records, model.empty, model.picked) == ([], True, {0})
    read(model, [log])
    assert texts(model) == ["a needle"]
