"""How a mixture of experts is divided, by number of rows: what was measured on an H200, made to fit
other GPUs and types of numbers.

All ranks must use the same plans, since the order of a sum follows from them. Numbers of rows share
tiles where it costs little: each tile is compiled once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from panel.kernels.expert_tiles import Tile

BUCKETS = (2, 16, 64, 256, 512, 2048)
"""Rows that share a plan: those up to each, and from the last on."""
HOPPER_SHARED = 227 << 10
"""Bytes of shared memory that a program can have on a Hopper GPU."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How one call is divided."""

    gate_up: Tile
    down: Tile
    """Its rows are those of `gate_up`, since they share the tiles of pairs."""
    shared: Tile | None = None
    """The shared experts' first weights; None: in the launch of `gate_up`, with the choice, for as
    many rows as one tile has, and by the library, like their last weights, for more."""
    parts: int = 1
    """Parts of the shared experts' columns in the last product."""
    last_adds: bool = False
    """Sum in the last product's launch, where all rows are in one of its tiles."""

    def few(self, rows: int) -> bool:
        """Whether the choice is in the launch of `gate_up`."""
        return self.shared is None and rows <= self.gate_up.rows <= 16

    def library(self, rows: int) -> bool:
        """Whether the library multiplies the shared experts' weights."""
        return self.shared is None and not self.few(rows)

    def fitted(self, itemsize: int, limit: int) -> Plan:
        """Return the plan for numbers of `itemsize` bytes and so much shared memory.

        Products in float32 take no tensor cores: small tiles serve them best.
        """
        if itemsize == 4:
            height = min(32, self.gate_up.rows)
            small = Tile(height, 32, 32, stages=2)
            shared = small if self.shared else None
            return replace(self, gate_up=small, down=small, shared=shared)
        height = self.gate_up.rows if limit >= HOPPER_SHARED else min(64, self.gate_up.rows)
        gate_up = replace(self.gate_up, rows=height).fitted(itemsize, limit, gated=True)
        # The shared experts' rows in the last product may be more than its own.
        rows = max(height, self.shared.rows if self.shared else 0)
        down = replace(self.down, rows=rows).fitted(itemsize, limit, gated=False)
        shared = self.shared and self.shared.fitted(itemsize, limit, gated=True)
        return replace(self, gate_up=gate_up, down=replace(down, rows=height), shared=shared)


@dataclass(frozen=True, slots=True)
class Plans:
    """The plan of each bucket."""

    buckets: Mapping[int, Plan]

    def of(self, rows: int) -> Plan:
        """Return the plan for a number of rows."""
        return self.buckets[bucket(rows)]

    def to_json(self) -> dict[str, Any]:
        """Return plain values from which `from_json` makes them again."""
        return {str(rows): asdict(plan) for rows, plan in self.buckets.items()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Plans:
        """Return the plans that `to_json` was called on; buckets that lack are as measured."""
        read = {int(rows): _plan(plan) for rows, plan in values.items()}
        return cls({**MEASURED, **read})


def bucket(rows: int) -> int:
    """Return the bucket of a number of rows."""
    return next((most for most in BUCKETS if rows <= most), BUCKETS[-1])


def plans_for(dtype: torch.dtype, device: torch.device, plans: Plans | None = None) -> Plans:
    """Return plans, without any those measured, made to fit a type and a device's shared memory."""
    limit = HOPPER_SHARED
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        limit = getattr(found, "shared_memory_per_block_optin", found.shared_memory_per_block)
    buckets = MEASURED if plans is None else plans.buckets
    return Plans({rows: plan.fitted(dtype.itemsize, limit) for rows, plan in buckets.items()})


def _plan(plan: dict[str, Any]) -> Plan:
    tiles = {name: plan[name] and Tile(**plan[name]) for name in ("gate_up", "down", "shared")}
    return Plan(**plan | tiles)


_FEW = Plan(
    gate_up=Tile(16, 64, 128, stages=3, swap=True, group=2),
    down=Tile(16, 64, 128, stages=4, swap=True, group=2),
    parts=4,
    last_adds=True,
)
MEASURED = {
    2: replace(_FEW, gate_up=Tile(16, 64, 64, stages=4, swap=True, group=2)),
    16: _FEW,
    64: replace(_FEW, shared=Tile(32, 32, 128, stages=4), last_adds=False),
    256: Plan(
        gate_up=Tile(32, 64, 64, stages=4, swap=True, group=2),
        down=Tile(32, 128, 64, stages=4, group=2),
        shared=Tile(64, 32, 128, stages=3),
        parts=2,
    ),
    512: Plan(
        gate_up=Tile(64, 64, 64, stages=4, group=4),
        down=Tile(64, 128, 64, stages=4, group=4),
    ),
    2048: Plan(
        gate_up=Tile(128, 128, 64, stages=4, warps=8, group=8),
        down=Tile(128, 256, 64, stages=3, warps=8, group=8),
    ),
}
"""For bfloat16 on an H200."""
