"""A profile over several nodes → what each node is asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

import msgspec

from panel.domain.errors import UsageError
from panel.domain.flags import Profile
from panel.domain.plan import Problem
from panel.engines.base import Engine


def node_recipes(engine: Engine, profile: Profile, values: Mapping[str, str]) -> list[Profile]:
    """Return the profile of each node, in order: the launch's flags, the node's own, its place.

    Where the profile itself says where the ranks meet, it has its way. Raises `UsageError`.
    """
    count, first = len(profile.nodes), profile.nodes[0].address
    return [
        msgspec.structs.replace(
            profile,
            flags={**engine.node_flags(index, count, first), **values, **node.flags},
            env=profile.env | node.env,
            nodes=(),
        )
        for index, node in enumerate(profile.nodes)
    ]


def first_node_flags(engine: Engine, profile: Profile) -> dict[str, str]:
    """Return the flags by which the first node has its place; none where there is but one."""
    with suppress(UsageError):
        if profile.nodes:
            return engine.node_flags(0, len(profile.nodes), profile.nodes[0].address)
    return {}


def node_problems(
    engine: Engine, profile: Profile, values: Mapping[str, str]
) -> tuple[Problem, ...]:
    """Return why a launch cannot be shared by the profile's nodes."""
    return tuple(
        Problem(severity="refusal", text=text) for text in _faults(engine, profile, values)
    )


def _faults(engine: Engine, profile: Profile, values: Mapping[str, str]) -> Iterator[str]:
    count = len(profile.nodes)
    try:
        places = [engine.node_flags(index, count, "") for index in range(count)]
    except UsageError as error:
        yield str(error)
        return
    for name in places[-1].keys() & {"nnodes", "node-rank", "headless"}:
        if name in values:
            yield f"{name} is set for each node by the panel: take it out of the flags"
    world = engine.world_size(values)
    if world % count:
        yield f"{world} ranks cannot be shared by {count} nodes in equal parts"
