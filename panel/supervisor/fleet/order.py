"""What the keeper of several nodes is told."""

from __future__ import annotations

import msgspec

from panel.domain.flags import Profile
from panel.engines.base import Policy

LOST_S = 20.0
"""A node that does not answer for so long counts as gone."""
BEGUN = "nodes.json"


class NodeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One node: how it is reached, and what is to be launched there."""

    name: str
    ssh: str
    python: str
    home: str
    recipe: Profile | None = None


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """`nodes.json`: what runs where, for whoever has to end it when the keeper is gone."""

    nodes: list[NodeOrder]
    """Without recipes."""
    launches: list[int | None]
    started: list[bool]
    """Whether its supervisor was started for this launch."""


class FleetOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The one line that the keeper gets on its standard input."""

    folder: str
    uuid: str
    t0_mono_ns: int
    world_size: int
    policy: Policy
    nodes: list[NodeOrder]
    lost_s: float
