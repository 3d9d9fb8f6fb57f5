"""Stacks of many ranks → the few places where they stand, the odd one first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from panel.domain.stacks import Frame, ProcessStacks, StackGroup

STOPPED = ("t", "T")
REQUESTS = "requests"
_OTHERS = "the other ranks"
_DEPTH = 12
"""Frames within which a wait is looked for."""
_WAITS = (
    ("roster.py", "wait", _OTHERS),
    ("meeting.py", "", _OTHERS),
    ("distributed_c10d.py", "", _OTHERS),
    ("", "ncclAllReduce", _OTHERS),
    ("", "cudaStreamSynchronize", "its GPU"),
    ("", "cudaEventSynchronize", "its GPU"),
    ("", "cudaDeviceSynchronize", "its GPU"),
    ("streams.py", "synchronize", "its GPU"),
    ("leader.py", "", REQUESTS),
)
"""(file, function, what is waited for); an empty name is any."""
_STEP = ("gather", "follow")
"""Both sides of the meeting between two steps."""


def group(processes: Iterable[ProcessStacks]) -> tuple[StackGroup, ...]:
    """Return the groups, the one to look at first: those stopped by a signal, those that do not
    wait for other ranks, those that wait where few do, the smaller ones. Processes that are no
    ranks come last.
    """
    places: dict[tuple[object, ...], list[ProcessStacks]] = {}
    met: Counter[tuple[str, ...]] = Counter()
    for process in processes:
        places.setdefault(_place(process), []).append(process)
        met[meeting(main_frames(process))] += 1
    members = sorted(places.values(), key=lambda group: _order(group, met))
    return tuple(map(_group, members))


def meeting(frames: Iterable[Frame]) -> tuple[str, ...]:
    """Return in which meeting of our own engine a stack waits, empty where in none: the same for
    all who wait for one another, whatever their part in it."""
    inside = False
    for frame in frames:
        if frame.file.endswith("meeting.py"):
            if frame.name.rpartition(".")[2] in _STEP:
                return ("step",)
            inside = True
        elif inside:
            return (frame.name, frame.file)
    return ()


def main_frames(process: ProcessStacks) -> tuple[Frame, ...]:
    """Return the frames of the main thread."""
    return process.threads[0].frames if process.threads else ()


def _place(process: ProcessStacks) -> tuple[object, ...]:
    frames = main_frames(process)
    if not frames:
        return (process.source,)
    leaf, *callers = frames
    stopped = process.state in STOPPED
    # Within the innermost function the line depends on the moment: a wait is a loop.
    return (stopped, leaf.name, leaf.file, *((each.name, each.file, each.line) for each in callers))


def _order(
    members: list[ProcessStacks], met: Mapping[tuple[str, ...], int]
) -> tuple[bool, bool, bool, int, int, int]:
    stopped = members[0].state in STOPPED
    waits = _waits(main_frames(members[0])) == _OTHERS
    ranks = [member.rank for member in members if member.rank is not None]
    there = met[meeting(main_frames(members[0]))] if waits else 0
    return (not ranks, not stopped, waits, there, len(members), min(ranks, default=0))


def _group(members: list[ProcessStacks]) -> StackGroup:
    frames = main_frames(members[0])
    return StackGroup(
        sources=tuple(member.source for member in members),
        ranks=tuple(sorted(member.rank for member in members if member.rank is not None)),
        frames=frames,
        waits=_waits(frames),
    )


def _waits(frames: tuple[Frame, ...]) -> str:
    for frame in frames[:_DEPTH]:
        for file, name, what in _WAITS:
            if frame.file.endswith(file) and name in frame.name and (file or name):
                return what
    return ""
