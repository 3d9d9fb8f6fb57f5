"""Findings, traceback and report: what is read around a verdict, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from panel.domain.flags import Request
from panel.domain.snapshot import LaunchView, ProcessExit, ProcessView
from panel.domain.states import LaunchState, ProcessState
from panel.domain.verdict import Advice, Evidence, Verdict
from panel.domain.wire import LaunchRecord, LogWindow
from panel.widgets.findings import (
    Findings,
    Spot,
    good_before,
    records_of,
    spot_of,
    trace_at,
)
from panel.widgets.triage_report import report
from panel.widgets.triage_trace import around, frames_of, last_own

BUILTIN = "[2026-11-30 12:00:04.000 TP3 capture] ERROR "
TRACE = (
    "Traceback (most recent call last):",
    '  File "/srv/engine/graphs.py", line 3, in capture',
    "    assert metadata is not None",
    "           ^^^^^^^^^^^^^^^^^^^^",
    '  File "/usr/lib/python3/site-packages/torch/nn.py", line 9, in forward',
    "    return self._call()",
    "AssertionError: metadata is not None",
)


def window(text: str, source: str = "rank-3") -> LogWindow:
    size = len(text.encode())
    return LogWindow(source=source, offset=0, end=size, size=size, text=text, times=((4.1, 0),))


def launch(**more: Any) -> LaunchView:
    gone = ProcessExit(t=4.2, code=1, words="ended by an exception (exit code 1)")
    rank = ProcessView(source="rank-3", pid=7, rank=3, state=ProcessState.FAILED, exit=gone)
    usual: dict[str, Any] = {
        "id": 17, "uuid": "u", "request": Request(profile="tiny"), "engine": "builtin",
        "version": "0.1.0", "state": LaunchState.CRASHED, "world_size": 8, "t0_unix": 0.0,
        "t": 5.0, "url": "", "processes": (rank,), "log_sizes": {"rank-3": 900}, "chips": ("tp8",),
    }  # fmt: skip
    return LaunchView(**(usual | more))


def verdict(**more: Any) -> Verdict:
    return Verdict(
        **({"status": "crashed", "headline": "rank 3 failed", "root_ranks": (3,), "t_first": 4.1}
           | more)
    )  # fmt: skip


def record(number: int, **more: Any) -> LaunchRecord:
    usual: dict[str, Any] = {
        "id": number, "uuid": str(number), "request": Request(profile="tiny"), "engine": "builtin",
        "version": "1", "state": LaunchState.STOPPED, "t0_unix": 0.0, "ready_s": 5.0,
    }  # fmt: skip
    return LaunchRecord(**(usual | more))


def test_the_spot_is_the_first_evidence_in_a_log_else_the_end_of_that_of_the_root() -> None:
    lines = (
        Evidence(source="events", offset=0, line=1, text="exit"),
        Evidence(source="rank-3", offset=120, line=4, text="AssertionError"),
    )
    assert spot_of(launch(), verdict(evidence=lines)) == Spot("rank-3", 120)
    assert spot_of(launch(), verdict(evidence=lines[:1])) == Spot("rank-3", 900)
    assert spot_of(launch(), verdict(root_ranks=())) == Spot("rank-3", 900)
    assert spot_of(launch(processes=()), verdict()) is None


@pytest.mark.parametrize("prefix", [BUILTIN, ""], ids=["builtin", "bare"])
def test_the_traceback_at_the_spot_is_found_in_any_log(prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in ("an error before", *TRACE))
    text += BUILTIN.replace("ERROR", "INFO") + "after\n"
    records = records_of(window(text))
    link = trace_at(records, records[3].offset)

    assert link is not None
    assert (link.type, link.message) == ("AssertionError", "metadata is not None")
    assert [frame.place for frame in frames_of(link)] == [
        "engine/graphs.py:3 capture", "torch/nn.py:9 forward",
    ]  # fmt: skip
    frame = last_own(link)
    assert frame is not None
    assert frame.code == "assert metadata is not None"
    assert trace_at(records, records[0].offset) is None


def test_source_is_shown_only_of_the_file_that_ran() -> None:
    text = "".join(f"{line}\n" for line in TRACE)
    link = trace_at(records_of(window(text)), 0)
    assert link is not None
    frame = last_own(link)
    assert frame is not None

    assert around("a = 1\nb = 2\n    assert metadata is not None\nc = 3\n", frame, 1) == {
        2: "b = 2", 3: "    assert metadata is not None", 4: "c = 3",
    }  # fmt: skip
    assert around("a = 1\nb = 2\n    assert other\n", frame, 1) == {}
    assert around("too short\n", frame, 1) == {}


def test_the_last_good_launch_is_of_this_profile_got_ready_and_did_not_fail() -> None:
    good = record(12)
    ledger = [
        record(18), record(17, state=LaunchState.CRASHED), record(16, state=LaunchState.CRASHED),
        record(15, ready_s=None), record(14, request=Request(profile="kimi")), good, record(11),
    ]  # fmt: skip
    assert good_before(ledger, launch()) is good
    assert good_before(ledger[:5], launch()) is None


def test_differences_are_of_flags_versions_and_environment() -> None:
    findings = Findings(
        record=record(17, flags={"ep-size": "8"}, versions={"torch": "2.13"},
                      env={"NCCL_DEBUG": "1"}),
        good=record(16, versions={"torch": "2.12"}),
    )  # fmt: skip
    assert [(one.name, one.before, one.after) for one in findings.differences] == [
        ("ep-size", None, "8"), ("torch", "2.12", "2.13"), ("NCCL_DEBUG", None, "1"),
    ]  # fmt: skip
    assert Findings(record=record(17)).differences == ()


class TestReport:
    """The Markdown that leaves the node."""

    @pytest.fixture
    def text(self) -> str:
        log = "".join(f"{BUILTIN}{line}\n" for line in ("```fenced``` in /home/olga/m", *TRACE))
        records = records_of(window(log))
        findings = Findings(
            tails=records, around=records, trace=trace_at(records, records[4].offset),
            record=record(17, flags={"ep-size": "8"}, versions={"torch": "2.13.0"},
                          env={"HF_TOKEN": "hf_abcdefghijklmnop"}),
            good=record(16, flags={"api-key": "older-secret-key"}),
        )  # fmt: skip
        found = verdict(
            cause="no hook",
            evidence=(Evidence(source="rank-3", offset=0, line=7, text="token=abcdef0123456789"),),
            advice=(Advice(confirm="without experts", change={"ep-size": "1"}),),
            missing=("kernel log",),
        )
        flags = {"model-path": "/home/olga/model", "api-key": "very-secret-key", "host": "gpu-a"}
        return report(launch(flags=flags), found, findings, {"/home/olga": "~", "gpu-a": "node"})

    def test_it_is_complete(self, text: str) -> None:
        for wanted in (
            "# builtin 0.1.0: rank 3 failed", "- cause: no hook", "- torch: 2.13.0",
            "- 8 ranks: tp8", "--model-path=~/model", "rank-3:7 ", "| rank 3 | +0.00 s | +0.10 s |",
            "AssertionError: metadata is not None", "- `ep-size`: `not set` → `8`",
            "- confirm: `--ep-size=1`; without experts", "- not available: kernel log",
        ):  # fmt: skip
            assert wanted in text

    def test_nothing_secret_or_private_is_in_it(self, text: str) -> None:
        for secret in (
            "hf_abc",
            "very-secret",
            "older-secret",
            "abcdef0123456789",
            "olga",
            "gpu-a",
        ):
            assert secret not in text

    def test_a_fence_in_the_log_does_not_end_the_block(self, text: str) -> None:
        fence = next(line for line in text.split("## Log")[1].splitlines() if line.startswith("`"))
        assert fence == "````text"
