"""What is still held of the GPUs after a launch."""

from __future__ import annotations

import pytest

from panel.domain.gpu import GpuProcess, GpuSample
from panel.domain.run import Process, Run
from panel.supervisor.watch.held import still_held

GIB = 1 << 30
RUN = Run(processes={7: Process(source="engine", pid=7, rank=3)})


def gpu(used: int, *pids: int) -> GpuSample:
    processes = tuple(GpuProcess(pid=pid, memory=used * GIB) for pid in pids)
    return GpuSample(
        index=2, uuid="GPU-2", bus_id="b", name="RTX", memory_used=used * GIB, processes=processes
    )


@pytest.mark.parametrize(
    ("before", "now", "outside", "words"),
    [
        (gpu(1), gpu(1), False, []),
        (gpu(1), gpu(71, 7), False, ["GPU 2 is still held by rank 3 (pid 7, 71.0 GiB)"]),
        # A neighbour came while we ran: only where a member may be unknown is it in doubt.
        (gpu(1), gpu(71, 9), False, []),
        (gpu(1), gpu(71, 9), True, ["not known to be of the launch (pid 9, 71.0 GiB)"]),
        # It was there before.
        (gpu(40, 9), gpu(41, 9), True, []),
        (gpu(1), gpu(71), True, ["still holds 70.0 GiB more than before the launch"]),
        (gpu(1), gpu(71), False, []),
        (gpu(70), gpu(1), True, []),
    ],
)
def test_what_is_said(before: GpuSample, now: GpuSample, outside: bool, words: list[str]) -> None:
    found = still_held({2: before}, [now], RUN, outside=outside)
    assert len(found) == len(words)
    assert all(each in text for each, text in zip(words, found, strict=True))


def test_a_gpu_that_was_not_seen_before_is_its_own_measure() -> None:
    assert still_held({}, [gpu(71, 9)], RUN, outside=True) == ()
