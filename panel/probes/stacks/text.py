"""Stacks as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from panel.domain.stacks import ProcessStacks, StackGroup, Stacks

_STATES = {"T": "stopped by a signal", "t": "stopped by a debugger", "D": "waits for a device"}


def lines(stacks: Stacks, threads: bool = False) -> Iterator[str]:
    """Yield the groups, the odd one first; with `threads` every thread of every process instead."""
    by_source = {process.source: process for process in stacks.processes}
    yield (
        f"{len(stacks.processes)} processes at {len(stacks.groups)} places,"
        f" {stacks.t:.1f} s after launch"
    )
    for group in stacks.groups:
        yield ""
        members = [by_source[source] for source in group.sources]
        yield f"{_who(group)}{_what(group, members)}"
        if threads:
            for member in members:
                yield from _threads(member)
        else:
            yield from (f"  {frame}" for frame in group.frames)
        yield from (f"  {member.source}: {member.trouble}" for member in members if member.trouble)


def _who(group: StackGroup) -> str:
    others = [source for source in group.sources if not source.startswith("rank-")]
    names = []
    if group.ranks:
        word = "rank" if len(group.ranks) == 1 else "ranks"
        names.append(f"{word} {', '.join(map(str, group.ranks))}")
    return ", ".join([*names, *others])


def _what(group: StackGroup, members: list[ProcessStacks]) -> str:
    states = [
        _STATES[state]
        for state in dict.fromkeys(each.state for each in members)
        if state in _STATES
    ]
    waits = [f"waits for {group.waits}"] if group.waits else []
    words = [*states, *waits]
    return f" ({', '.join(words)})" if words else ""


def _threads(process: ProcessStacks) -> Iterator[str]:
    for thread in process.threads:
        marks = [word for word, on in (("active", thread.active), ("GIL", thread.gil)) if on]
        yield f"  {process.source}, {thread.name}{': ' + ', '.join(marks) if marks else ''}"
        yield from (f"    {frame}" for frame in thread.frames)
