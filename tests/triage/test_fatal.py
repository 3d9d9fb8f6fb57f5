"""Native crashes: the frame out of faulthandler's dump, and the family by what the ranks run on."""

from __future__ import annotations

import pytest

from panel.domain.events import Exit, Spawn
from panel.domain.verdict import Verdict
from panel.triage.facts import Facts
from panel.triage.triage import Triage

DUMP = """\
[2026-03-04 10:00:01.000 TP2 args] INFO rank 2 of 4, {device}
Fatal Python error: Segmentation fault

Thread 0x00007f6542f666c0 (most recent call first):
  File "/srv/lib/threading.py", line 982 in run

Current thread 0x00007f65439c3b80 [python] (most recent call first):
  File "/srv/site-packages/torch/nn/linear.py", line 117 in forward
  File "/srv/engine/experts.py", line 41 in combine
  File "/srv/engine/rank.py", line 9 in main

Extension modules: numpy.linalg, torch._C (total: 2)
"""


def read(text: str, chunk: int) -> Verdict:
    triage = Triage(Facts(engine="builtin", world_size=4))
    for rank in range(4):
        triage.see(Spawn(t=0.1, source=f"rank-{rank}", pid=10 + rank, rank=rank))
    data = text.encode()
    triage.read("rank-2", b"", [(1.0, 0)])
    for start in range(0, len(data), chunk):
        triage.read("rank-2", data[start : start + chunk])
    triage.see(Exit(t=1.1, pid=12, code=-11))
    return triage.verdict()


@pytest.mark.parametrize("chunk", [7, 90, 4096])
def test_the_frame_is_that_of_the_thread_that_crashed(chunk: int) -> None:
    found = read(DUMP.format(device="cuda:2"), chunk)
    assert (found.kind, found.root_ranks) == ("sigsegv", (2,))
    assert found.cause.endswith("Python stood at engine/experts.py:41 in combine")
    assert [line.line for line in found.evidence[:2]] == [2, 9]


def test_it_is_told_before_the_dump_is_complete() -> None:
    text = DUMP.format(device="cuda:2")
    assert read(text[: text.index("Current thread")], 4096).kind == "sigsegv"
    begun = read(text[: text.index('  File "/srv/engine/rank')], 4096)
    assert "experts.py:41" in begun.cause


def test_what_comes_behind_the_dump_is_read_as_ever() -> None:
    later = (
        "[2026-03-04 10:00:02.000 TP2 capture] ERROR CUDA out of memory. Tried to allocate 1 GiB"
    )
    text = DUMP.format(device="cpu") + later + "\n"
    marks = Triage(Facts(engine="builtin", world_size=4))
    marks.read("rank-2", text.encode(), [(1.0, 0)])
    assert [mark.kind for mark in marks.scene().marks] == ["sigsegv", "oom_capture"]


@pytest.mark.parametrize(
    ("device", "family"), [("cpu", "process-death"), ("cuda:2", "cuda-runtime")]
)
def test_a_crash_on_the_cpu_is_no_trouble_of_the_gpu(device: str, family: str) -> None:
    assert read(DUMP.format(device=device), 4096).family == family
