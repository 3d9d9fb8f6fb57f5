"""A launch over several nodes in the terms of one: which rank is where, whose pid is whose."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from panel.domain.verdict import Verdict

_PIDS = 10_000_000
"""More than the kernel's highest process id."""
_SHARED = re.compile(r"(?<=pid )\d{8,}")
_EVENTS = "events"
"""Source of the evidence that triage words itself."""


def node_of(rank: int, world_size: int, nodes: Sequence[str]) -> str:
    """Return the node of a rank; empty where there are none."""
    return nodes[min(rank * len(nodes) // world_size, len(nodes) - 1)] if nodes else ""


def shared_pid(index: int, pid: int) -> int:
    """Return what stands for a process of node `index`: unlike any of another node, or of ours."""
    return (index + 1) * _PIDS + pid


def own_pid(pid: int) -> int:
    """Return the process id on its own node."""
    return pid % _PIDS


def _own_pids(text: str) -> str:
    return _SHARED.sub(lambda match: str(own_pid(int(match[0]))), text)


def with_nodes(verdict: Verdict, world_size: int, nodes: Sequence[str]) -> Verdict:
    """Return a verdict whose headline says where the ranks are that it blames, and whose evidence
    names processes as their nodes do."""
    if not nodes:
        return verdict
    headline = verdict.headline
    roots = () if verdict.root_ranks == "all" else verdict.root_ranks
    places = dict.fromkeys(node_of(rank, world_size, nodes) for rank in roots)
    if places and not any(place in headline for place in places):
        headline = f"{' and '.join(places)}: {headline}"
    evidence = tuple(
        msgspec.structs.replace(each, text=_own_pids(each.text)) if each.source == _EVENTS else each
        for each in verdict.evidence
    )
    return msgspec.structs.replace(verdict, headline=headline, evidence=evidence)
