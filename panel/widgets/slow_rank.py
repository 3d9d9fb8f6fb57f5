"""Which rank the others wait for, as far as GPUs, CPU and steps tell. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from panel.domain.gpu import Gpu, GpuSample
from panel.domain.snapshot import ProcessView, Snapshot
from panel.domain.states import ProcessState
from panel.probes.gpu.alarms import LOAD
from panel.widgets import gpu_words

_SLOWER = 0.9
"""Of what the others have; less is worth a word."""
_STEPS = 2
"""Ranks are read one after the other, so that one step of difference says nothing."""
_LATE = 0.5
"""Of the looks; a meeting that is waited in for long has one rank that comes last."""
_LONGER = 1.5
_CPU_LEAST = 20.0
"""Per cent of a core above the others."""


class Slow(NamedTuple):
    """One rank, and how it differs."""

    rank: int
    share: float
    """Of what the others have."""
    why: str


def slow_rank(snapshot: Snapshot) -> Slow | None:
    """Return the rank that differs most to its disadvantage, None where none stands out."""
    found = [*_behind(snapshot), *_awaited(snapshot), *_gpus(snapshot)]
    if not gpu_words.on_gpus(snapshot):
        found += _longest(_serving(snapshot))
    return min(found, key=lambda slow: slow.share, default=None)


def _serving(snapshot: Snapshot) -> list[ProcessView]:
    ranks = snapshot.launch.ranks if snapshot.launch else ()
    return [rank for rank in ranks if rank.state in (ProcessState.SERVING, ProcessState.STALE)]


def _behind(snapshot: Snapshot) -> Iterator[Slow]:
    ranks = _serving(snapshot)
    most = max((rank.step for rank in ranks), default=0)
    for rank in ranks:
        if rank.rank is not None and most - rank.step >= _STEPS:
            yield Slow(rank.rank, 0.0, f"is {most - rank.step} steps behind the others")


def _awaited(snapshot: Snapshot) -> Iterator[Slow]:
    """Compare by whom the others waited for in their meetings, where the engine counts those."""
    for rank in _serving(snapshot):
        if rank.rank is not None and rank.late >= _LATE:
            why = f"comes last: the others wait for it {rank.late:.0%} of the time"
            yield Slow(rank.rank, 1.0 - rank.late, why)


def _gpus(snapshot: Snapshot) -> Iterator[Slow]:
    """Compare under load only: an idle GPU slows its clock and its link down by design."""
    busy = [
        gpu
        for gpu in gpu_words.by_rank(snapshot).values()
        if (gpu.sample.util or 0) >= LOAD and not gpu_words.trouble(gpu)
    ]
    for gpu in busy:
        others = [other.sample for other in busy if other is not gpu]
        if gpu.rank is not None and others:
            yield from _against(gpu, gpu.rank, others)


def _against(gpu: Gpu, rank: int, others: list[GpuSample]) -> Iterator[Slow]:
    clocks = [other.clock for other in others if other.clock]
    own = gpu.sample.clock
    if own and clocks and own < _SLOWER * median(clocks):
        why = f"computes at {own} MHz, the others at {median(clocks):.0f}"
        yield Slow(rank, own / median(clocks), why)
    best = max(others, key=_speed)
    speed = _speed(gpu.sample)
    if speed and speed < _SLOWER * median(map(_speed, others)):
        why = f"has a PCIe link of {gpu_words.link(gpu.sample)}, others {gpu_words.link(best)}"
        yield Slow(rank, speed / _speed(best), why)


def _speed(sample: GpuSample) -> float:
    """Return what the link carries, relative to one lane of generation 1; 0: not known."""
    if not sample.pcie_gen or not sample.pcie_width:
        return 0.0
    return float(2 ** (sample.pcie_gen - 1) * sample.pcie_width)


def _longest(ranks: list[ProcessView]) -> Iterator[Slow]:
    """Who waits for the others sleeps; so the rank that they wait for uses the most CPU."""
    for rank in ranks:
        others = [other.cpu for other in ranks if other is not rank]
        usual = median(others) if others else rank.cpu
        if rank.rank is not None and rank.cpu > max(_LONGER * usual, usual + _CPU_LEAST):
            why = f"computes {rank.cpu:.0f}% of the time, the others {usual:.0f}%"
            yield Slow(rank.rank, usual / rank.cpu, why)
