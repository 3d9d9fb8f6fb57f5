"""What is still held of the GPUs after a launch. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from panel.domain.events import Gpu as GpuEvent
from panel.domain.gpu import GpuProcess, GpuSample
from panel.domain.run import Run

RESIDUE = 1 << 30
"""Bytes by which the memory in use may have grown without anybody being to blame."""
_GIB = 1 << 30


def as_first_seen(sample: GpuSample, first: GpuEvent | None) -> GpuSample:
    """Return a sample with the holders that the evidence of the launch names first: where the
    supervisor has been started again since, those of now are of the launch itself."""
    if first is None or first.processes is None:
        return sample
    holders = tuple(GpuProcess(pid=pid, memory=memory) for pid, memory in first.processes)
    return msgspec.structs.replace(sample, processes=holders, memory_used=first.mem_used)


def still_held(
    before: Mapping[int, GpuSample], now: Iterable[GpuSample], run: Run, *, outside: bool
) -> tuple[str, ...]:
    """Return a sentence for each GPU that is not as free as it was `before` the launch, by index.

    `outside`: the gang's processes are no children of ours, so that one of them may not be known;
    then every newcomer counts.
    """
    return tuple(text for sample in now for text in _held(before, sample, run, outside))


def _held(
    before: Mapping[int, GpuSample], sample: GpuSample, run: Run, outside: bool
) -> Iterator[str]:
    earlier = before.get(sample.index, sample)
    known = {each.pid for each in earlier.processes}
    new = [each for each in sample.processes if each.pid not in known]
    guilty = [each for each in new if outside or each.pid in run.processes]
    if guilty:
        words = ", ".join(
            f"{_name(run, each.pid)} (pid {each.pid}{_size(each.memory)})" for each in guilty
        )
        yield f"GPU {sample.index} is still held by {words}"
        return
    grown = (sample.memory_used or 0) - (earlier.memory_used or 0)
    if outside and not new and grown > RESIDUE:
        yield (
            f"GPU {sample.index} still holds {grown / _GIB:.1f} GiB more than before the launch,"
            " by no process that the driver names"
        )


def _name(run: Run, pid: int) -> str:
    process = run.processes.get(pid)
    return process.label if process else "a process not known to be of the launch"


def _size(memory: int | None) -> str:
    return "" if memory is None else f", {memory / _GIB:.1f} GiB"
