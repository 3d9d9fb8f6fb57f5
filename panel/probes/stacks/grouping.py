"""Stacks of many ranks → the few places where they stand, the odd one first. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from panel.domain.stacks import Frame, ProcessStacks, StackGroup

STOPPED = ("t", "T")
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
    ("leader.py", "", "requests"),
)
"""(file, function, what is waited for); an empty name is any."""


def group(processes: Iterable[ProcessStacks]) -> tuple[StackGroup, ...]:
    """Return the groups, the one to look at first: those stopped by a signal, those that do not
    wait for other ranks, the smaller ones. Processes that are no ranks come last.
    """
    places: dict[tuple[object, ...], list[ProcessStacks]] = {}
    for process in processes:
        places.setdefault(_place(process), []).append(process)
    members = sorted(places.values(), key=_order)
    return tuple(map(_group, members))


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


def _order(members: list[ProcessStacks]) -> tuple[bool, bool, bool, int, int]:
    stopped = members[0].state in STOPPED
    waits = _waits(main_frames(members[0])) == _OTHERS
    ranks = [member.rank for member in members if member.rank is not None]
    return (not ranks, not stopped, waits, len(members), min(ranks, default=0))


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
