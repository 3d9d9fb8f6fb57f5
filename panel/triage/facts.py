"""What is known of a launch besides its logs and events."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from panel.domain.since import Since

_WORLD_FLAGS = ("tp-size", "tensor-parallel-size", "tp", "nproc-per-node", "nproc_per_node")
_SHORT = {
    "-tp": "tensor-parallel-size",
    "-dp": "data-parallel-size",
    "-pp": "pipeline-parallel-size",
}


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """`launch.json`, as far as triage needs it; everything in it may be missing."""

    engine: str = ""
    version: str = ""
    argv: tuple[str, ...] = ()
    world_size: int = 0
    t0_unix: float = 0.0
    sources: dict[str, int | None] = {}
    since: Since | None = None

    def flags(self) -> dict[str, str]:
        """Return the flags by long name; switches are `true`."""
        return parse_flags(self.argv)


def parse_flags(argv: Sequence[str]) -> dict[str, str]:
    """Return the long flags of a command line; what stands between two flags is one value."""
    flags: dict[str, str] = {}
    name = ""
    for word in argv:
        if match := re.fullmatch(r"--([A-Za-z][\w.-]*)(?:=(.*))?", word):
            name = match[1].replace("_", "-")
            flags[name] = "true" if match[2] is None else match[2]
        elif word in _SHORT:
            name = _SHORT[word]
            flags[name] = "true"
        elif name:
            flags[name] = word if flags[name] == "true" else f"{flags[name]} {word}"
    return flags


def world_of(flags: Mapping[str, str]) -> int:
    """Return the number of ranks that flags ask for, 0 where they do not say."""
    sizes = [int(flags[name]) for name in _WORLD_FLAGS if flags.get(name, "").isdecimal()]
    stages = flags.get("pp-size", flags.get("pipeline-parallel-size", "1"))
    replicas = flags.get("data-parallel-size", "1")
    factor = int(stages) if stages.isdecimal() else 1
    factor *= int(replicas) if replicas.isdecimal() else 1
    return max(sizes, default=0) * factor
