"""Hangs without a culprit: what else of the launch explains them, and when nothing does."""

from __future__ import annotations

import msgspec
import pytest

from panel.domain.events import Spawn
from panel.domain.plan import Change
from panel.domain.since import Since
from panel.domain.verdict import Verdict
from panel.triage.facts import Facts
from panel.triage.scene import Beat
from panel.triage.triage import Triage

NEWER = Change(name="flashinfer-python", before="0.6.7", after="0.6.8")
FIRST_SEEN = Change(name="triton", before=None, after="3.6.0")
FLAG = Change(name="ep-size", before="1", after="8")
TIMED_OUT = "TimeoutError: RPC call to compile_or_warm_up_model timed out.\n"
SERVED = "(APIServer pid=1) INFO 03-04 10:00:00 [api.py:1] Application startup complete.\n"
HINT = (
    "[2026-03-04 10:00:00.000 TP0 import] WARNING Failed to import from vllm._C with ImportError\n"
)


def hung(since: Since | None, log: str = "", *, odd: bool = False) -> Verdict:
    triage = Triage(Facts(engine="vllm", world_size=4, since=since))
    for rank in range(4):
        triage.see(Spawn(t=0.1, source="engine", pid=10 + rank, rank=rank))
    triage.read("engine", (log + TIMED_OUT * (not odd)).encode(), [(1.0, 0)])
    beats = [Beat(rank, "serving", 99 if rank == 3 else 100, 25.0) for rank in range(4)]
    return triage.verdict(90.0, beats if odd else ())


def test_a_start_that_hangs_since_a_library_changed() -> None:
    found = hung(Since(launch=16, versions=(FIRST_SEEN, NEWER)))
    assert (found.status, found.kind, found.confidence) == ("hung", "hang_dependency", "low")
    assert found.headline.endswith("flashinfer-python 0.6.7 \u2192 0.6.8 since launch 16")
    assert any("pin the library" in advice.why for advice in found.advice)


@pytest.mark.parametrize(
    "since",
    [
        None,
        Since(launch=16),
        Since(launch=16, versions=(FIRST_SEEN,)),
        Since(launch=16, versions=(NEWER,), flags=(FLAG,)),
        Since(launch=16, versions=(NEWER,), env=(FLAG,)),
    ],
)
def test_what_has_another_explanation_or_none_stays_unknown(since: Since | None) -> None:
    assert hung(since).kind == "hang_rpc"


def test_a_gang_that_served_with_the_library_does_not_hang_of_it() -> None:
    assert hung(Since(launch=16, versions=(NEWER,)), SERVED).kind == "hang_rpc"


def test_a_rank_that_is_behind_is_blamed_before_any_library() -> None:
    found = hung(Since(launch=16, versions=(NEWER,)), HINT, odd=True)
    assert (found.kind, found.root_ranks) == ("unknown_hang", (3,))


def test_a_warning_of_the_start_explains_a_hang_and_is_no_failure_itself() -> None:
    found = hung(None, HINT)
    assert (found.kind, found.root_ranks) == ("arch_silent_fallback", ())
    assert "Failed to import from vllm._C" in found.evidence[0].text
    quiet = Triage(Facts(engine="vllm", world_size=4))
    quiet.read("engine", HINT.encode(), [(1.0, 0)])
    assert quiet.verdict(90.0).status == "running"


def test_the_evidence_folder_keeps_what_is_new() -> None:
    spec = msgspec.json.encode({"engine": "vllm", "since": Since(launch=16, versions=(NEWER,))})
    assert msgspec.json.decode(spec, type=Facts).since == Since(launch=16, versions=(NEWER,))
