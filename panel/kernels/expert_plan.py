"""How a mixture of experts is divided, by number of rows: rules, or what was measured; as JSON.

All ranks must use the same plans, since the order of a sum follows from them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from panel.kernels.expert_tiles import Tile

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048)
"""Rows that share a plan: those up to each, and from the last on."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How one call is divided."""

    input: Tile
    gate_up: Tile
    down: Tile
    """Its rows are those of `gate_up`, since they share the tiles of pairs."""
    parts: int = 1
    """Parts of the shared experts' columns in the last product."""
    shared_rows: int = 16
    """Rows of a tile of the shared experts in the last product; at least those of `gate_up`."""
    fuse_norm: bool = True
    """Norm in the input's launch, where all rows are in one of its tiles."""
    fuse_choice: bool = True
    """Choice in the input's launch, where all rows are in one of its tiles and fit a program."""
    last_adds: bool = True
    """Sum in the last product's launch, where all rows are in one of its tiles."""


@dataclass(frozen=True, slots=True)
class Plans:
    """The plan of each bucket."""

    buckets: Mapping[int, Plan]

    def of(self, rows: int) -> Plan:
        """Return the plan for a number of rows."""
        return self.buckets[bucket(rows)]

    def to_json(self) -> str:
        """Return the plans as text."""
        return json.dumps({str(rows): asdict(plan) for rows, plan in self.buckets.items()})

    @classmethod
    def from_json(cls, text: str) -> Plans:
        """Read what `to_json` wrote; buckets it lacks keep the rules."""
        read = {int(rows): _plan(plan) for rows, plan in json.loads(text).items()}
        return cls({rows: read.get(rows, _rule(rows)) for rows in BUCKETS})


def bucket(rows: int) -> int:
    """Return the bucket of a number of rows."""
    return next((most for most in BUCKETS if rows <= most), BUCKETS[-1])


def _plan(plan: dict[str, Any]) -> Plan:
    tiles = {name: Tile(**plan[name]) for name in ("input", "gate_up", "down")}
    return Plan(**plan | tiles)


def _rule(rows: int) -> Plan:
    """Return a plan for large GPUs."""
    if rows <= 16:
        return Plan(
            input=Tile(16, 32, 128, stages=4),
            gate_up=Tile(16, 64, 64, stages=4),
            down=Tile(16, 64, 128, stages=4),
            parts=2,
            last_adds=rows <= 4,
        )
    if rows <= 256:
        height = 16 if rows <= 128 else 32
        return Plan(
            input=Tile(min(64, rows), 32, 64, stages=4),
            gate_up=Tile(height, 64, 64, stages=4, group=2),
            down=Tile(height, 128, 64, stages=4, group=2),
            parts=2,
            shared_rows=min(64, rows),
            fuse_norm=rows <= 64,
            fuse_choice=False,
            last_adds=False,
        )
    height = 64 if rows <= 512 else 128
    wide = Tile(height, 128, 64, stages=3, warps=8, group=8)
    return Plan(wide, wide, wide, fuse_norm=False, fuse_choice=False, last_adds=False)


DEFAULT_PLANS = Plans({rows: _rule(rows) for rows in BUCKETS})
