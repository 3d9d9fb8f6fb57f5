"""The phases of a process of the engine, in the order in which they come."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Where a process stands. `ready` is an instant; `serving` includes idling."""

    ARGS = "args"
    SPAWN = "spawn"
    IMPORT = "import"
    DIST_INIT = "dist_init"
    WEIGHTS = "weights"
    WORKSPACE = "workspace"
    DRAFT = "draft"
    KV_CACHE = "kv_cache"
    CAPTURE = "capture"
    WARMUP = "warmup"
    READY = "ready"
    SERVING = "serving"
    DRAINING = "draining"
    STOPPED = "stopped"


ORDER: tuple[Phase, ...] = tuple(Phase)
"""Index in this tuple is the number written into heartbeats."""
