"""Tracebacks out of lines, as engines print them."""

from __future__ import annotations

from panel.triage.reader import LineReader
from panel.triage.signature import load
from panel.triage.trace import Link, LogLine, TraceReader

CAUSE = """Traceback (most recent call last):
  File "/srv/a.py", line 3, in load
    raise ValueError("no such expert 7")
ValueError: no such expert 7"""
LINK = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
EFFECT = """Traceback (most recent call last):
  File "/srv/b.py", line 9, in capture
    raise CaptureError("Capture failed") from error
x.y.CaptureError: Capture failed
with a second line
Possible solutions:
1. set --mem-fraction-static to a smaller value"""


def chain_of(text: str) -> tuple[Link, ...]:
    reader = TraceReader()
    for number, line in enumerate(text.split("\n"), 1):
        assert not list(reader.feed(LogLine(0, number, line)))
    return reader.so_far()


def test_chain_has_its_cause_first_and_no_hints() -> None:
    cause, effect = chain_of(CAUSE + LINK + EFFECT)
    assert (cause.type, cause.message) == ("ValueError", "no such expert 7")
    assert (effect.type, effect.message) == ("CaptureError", "Capture failed\nwith a second line")


def test_deciding_lines_are_the_exception_and_the_last_frame_of_the_project() -> None:
    text = CAUSE.replace(
        "ValueError: ", '  File "/x/torch/nn.py", line 5, in call\n    f()\nValueError: '
    )
    (link,) = chain_of(text)
    assert [line.number for line in link.deciding] == [6, 2, 3]


def test_bare_assertion_is_told_by_its_source_line() -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    assert x\n'
    (link,) = chain_of(text + "AssertionError")
    assert (link.type, link.message, link.short) == ("AssertionError", "", "assert x")


def test_traceback_that_was_cut_off_says_nothing() -> None:
    assert chain_of('Traceback (most recent call last):\n  File "a.py", line') == ()


def marks_of(text: str, source: str = "engine") -> list[tuple[int | None, str, str]]:
    reader = LineReader(source, load())
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        found += reader.read(LogLine(number * 100, number, line), float(number), True)
    return [(mark.rank, mark.kind, mark.text) for mark in (*found, *reader.pending())]


def test_sglang_prints_its_prefix_on_the_first_line_only() -> None:
    head = "[2026-03-04 10:00:00 TP3] Scheduler hit an exception: "
    text = head + CAUSE + "\n\n[2026-03-04 10:00:01 TP0] Decode batch"
    assert marks_of(text) == [(3, "unknown_exception", "no such expert 7")]


def test_record_glued_to_a_progress_bar() -> None:
    text = "40/128 [04:41,  6.84s/it][2026-03-04 10:00:00 TP1 EP1] Scheduler hit an exception: "
    assert marks_of(text + CAUSE) == [(1, "unknown_exception", "no such expert 7")]


def test_vllm_prints_its_prefix_on_every_line_and_processes_interleave() -> None:
    def worker(rank: int, line: str) -> str:
        return f"(Worker_TP{rank} pid={40 + rank}) ERROR 03-04 10:00:00 [x.py:7] {line}"

    lines = CAUSE.split("\n")
    pairs = [worker(rank, line) for line in lines for rank in (0, 2)]
    assert marks_of("\n".join(pairs)) == [
        (0, "unknown_exception", "no such expert 7"),
        (2, "unknown_exception", "no such expert 7"),
    ]


def test_exception_that_python_ignored_is_no_fault() -> None:
    text = "Exception ignored in: <function X.__del__ at 0x7f>\n" + CAUSE
    assert marks_of(text) == []


def test_excepthook_knows_the_global_rank() -> None:
    text = "\n".join(f"[rank5]: {line}" for line in CAUSE.split("\n"))
    assert marks_of(text) == [(5, "unknown_exception", "no such expert 7")]


def test_rank_of_a_log_of_its_own() -> None:
    assert marks_of(CAUSE, "rank-6") == [(6, "unknown_exception", "no such expert 7")]


def test_words_of_a_user_are_no_fault() -> None:
    text = "[2026-03-04 10:00:00] Receive: obj=GenerateReqInput(text='CUDA out of memory?')"
    assert marks_of(text) == []
