"""What a node's supervisor sees of its part at the moment, for the screen of the whole."""

from __future__ import annotations

import msgspec

from panel.domain.gpu import Gpu
from panel.domain.nodes import shared_pid
from panel.domain.snapshot import Snapshot
from panel.supervisor.watch.processes import Usage

LOOKS = "looks.json"
LOOK_S = 1.0


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Of one node, or of all; processes by the pids that no two nodes share."""

    usage: dict[int, Usage] = {}
    stopped: tuple[int, ...] = ()
    """Those that a signal stopped."""
    gpus: tuple[Gpu, ...] = ()
    """Those of ranks."""


def look_of(snapshot: Snapshot, launch: int, index: int) -> Look:
    """Return what node `index` sees of its launch; nothing where another one runs there."""
    if snapshot.launch is None or snapshot.launch.id != launch:
        return Look()
    alive = [each for each in snapshot.launch.processes if each.exit is None]
    return Look(
        usage={
            shared_pid(index, each.pid): Usage(each.cpu, each.rss, each.threads) for each in alive
        },
        stopped=tuple(shared_pid(index, each.pid) for each in alive if each.stopped),
        gpus=tuple(gpu for gpu in snapshot.gpus if gpu.rank is not None),
    )


def together(looks: list[Look]) -> Look:
    """Return what all nodes see."""
    return Look(
        usage={pid: usage for look in looks for pid, usage in look.usage.items()},
        stopped=tuple(pid for look in looks for pid in look.stopped),
        gpus=tuple(gpu for look in looks for gpu in look.gpus),
    )
