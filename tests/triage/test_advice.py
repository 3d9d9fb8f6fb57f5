"""Advice: spelled for the version, computed from what is set, never what is done already."""

from __future__ import annotations

import pytest

from panel.domain.verdict import Verdict
from panel.domain.versions import Span
from panel.triage.advice import spell
from panel.triage.facts import Facts, parse_flags, world_of
from panel.triage.triage import Triage

OOM = """[2026-03-04 10:00:00 TP{rank}] Capture cuda graph begin. This can take minutes.
[2026-03-04 10:00:01 TP{rank}] Scheduler hit an exception: Traceback (most recent call last):
  File "/srv/runner.py", line 2, in capture_one
    run()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96 MiB.
"""
HIDDEN = "[2026-03-04 10:00:00 TP{rank}] Registering 0 cuda graph addresses\n"


def verdict(text: str, argv: str, version: str = "0.5.9") -> Verdict:
    facts = Facts(engine="sglang", version=version, argv=tuple(argv.split()), world_size=4)
    triage = Triage(facts)
    triage.read("engine", "".join(text.format(rank=rank) for rank in range(4)).encode())
    triage.end()
    return triage.verdict()


@pytest.mark.parametrize(
    ("argv", "value"),
    [("--mem-fraction-static 0.93", "0.88"), ("--mem-fraction-static=0.5", "0.45")],
)
def test_a_fraction_is_lowered_from_what_it_is(argv: str, value: str) -> None:
    changes = [each.change for each in verdict(OOM, argv).advice]
    assert {"mem-fraction-static": value} in changes


def test_no_value_is_invented_where_none_is_known() -> None:
    assert all("mem-fraction-static" not in each.change for each in verdict(OOM, "").advice)
    assert any("--mem-fraction-static" in each.why for each in verdict(OOM, "").advice)


def test_what_is_set_already_is_not_advised() -> None:
    asked = verdict(HIDDEN, "--tp-size 4").advice
    assert {"disable-custom-all-reduce": "true"} in [each.change for each in asked]
    told = verdict(HIDDEN, "--tp-size 4 --disable-custom-all-reduce")
    assert told.kind == "capture_error_hidden"
    assert "disable-custom-all-reduce" not in str(told.advice)


@pytest.mark.parametrize(
    ("version", "flag"),
    [("0.5.9", "--cuda-graph-max-bs."), ("0.5.15", "--cuda-graph-max-bs-decode.")],
)
def test_flags_are_spelled_for_the_version(version: str, flag: str) -> None:
    whys = [f"{each.why}." for each in verdict(OOM, "--mem-fraction-static 0.9", version).advice]
    assert any(flag in why for why in whys)


def test_of_an_unknown_version_the_usual_spelling_is_taken() -> None:
    assert spell("sglang", "", "cuda-graph-max-bs") == "cuda-graph-max-bs"


def test_experiments_come_before_fixes() -> None:
    confirms = [each.confirm is not None for each in verdict(OOM, "").advice]
    assert confirms == sorted(confirms, reverse=True)
    assert len(confirms) <= 3


@pytest.mark.parametrize(
    ("span", "version", "holds"),
    [
        ("", "1.0", True),
        (">=0.5.10", "0.5.9", False),
        (">=0.5.10", "0.5.10.post1", True),
        (">=0.5,<0.6", "0.6", False),
        ("<=0.5", "0.5", True),
        (">1", "nightly", True),
    ],
)
def test_versions_compare_by_numbers(span: str, version: str, holds: bool) -> None:
    assert Span.parse(span).holds(version) is holds


def test_flags_of_a_command_line() -> None:
    words = ["serve", "/m", "-tp", "8", "--a_b=c", "--bs", "1", "2", "4", "--on", "--pp-size", "2"]
    flags = parse_flags(words)
    assert flags == {
        "tensor-parallel-size": "8", "a-b": "c", "bs": "1 2 4", "on": "true", "pp-size": "2",
    }  # fmt: skip
    assert world_of(flags) == 16


DRILLED = (
    "[2026-03-04 10:00:00.000 TP{rank} capture] ERROR Traceback (most recent call last):\n"
    + (
        '[2026-03-04 10:00:00.000 TP{rank} capture] ERROR   File "/srv/f.py", line 1, in fire\n'
        "[2026-03-04 10:00:00.000 TP{rank} capture] ERROR RuntimeError: on purpose\n"
    )
)


@pytest.mark.parametrize(("failed", "told"), [(3, True), (2, False)])
def test_a_drill_needs_no_other_remedy_but_another_ranks_failure_does(
    failed: int, told: bool
) -> None:
    argv = ("--tp-size=4", "--fault=rank=3,phase=capture,kind=exception")
    triage = Triage(Facts(engine="builtin", argv=argv, world_size=4))
    triage.read(f"rank-{failed}", DRILLED.format(rank=failed).encode())
    triage.end()
    found = triage.verdict()

    assert found.root_ranks == (failed,)
    assert ({"fault": ""} in [each.change for each in found.advice]) is told
