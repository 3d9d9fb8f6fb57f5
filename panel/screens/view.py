"""What the panel knows of the node, and what screens need to work: one of each a panel."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from panel.client import Client
from panel.domain.snapshot import PROTOCOL, LaunchView, Snapshot
from panel.domain.states import LaunchState
from panel.talk import EngineClient
from panel.widgets.glyphs import Glyphs


@dataclass(frozen=True, slots=True)
class View:
    """The last snapshot, and why there is none newer when the supervisor is lost."""

    snapshot: Snapshot | None = None
    lost: str | None = None
    as_of: float | None = None
    """Seconds since 1970 when the supervisor was lost."""

    @property
    def subject(self) -> tuple[str, str]:
        """What a question is about: the launch and its state."""
        return (self.launch.uuid, self.launch.state) if self.launch else ("", "")

    @property
    def launch(self) -> LaunchView | None:
        """The running launch, or the last one."""
        return self.snapshot.launch if self.snapshot else None

    @property
    def live(self) -> bool:
        """Whether a gang may be running."""
        return self.launch is not None and self.launch.state.live

    @property
    def hindrance(self) -> str:
        """Why no request can be sent now, or nothing."""
        if self.lost is not None:
            return "no supervisor answers; the panel keeps trying; q, then moepanel, starts one"
        if self.snapshot is None:
            return "waiting for the supervisor"
        if self.snapshot.protocol != PROTOCOL:
            return (
                f"the supervisor is of version {self.snapshot.supervisor.version}, which this "
                "panel can only read; moepanel shutdown, then moepanel, brings them together"
            )
        return ""


def exists(pid: int) -> bool:
    """Return whether this node has such a process."""
    return os.path.exists(f"/proc/{pid}")


@dataclass(slots=True)
class Desk:
    """Shared by all screens."""

    client: Client
    engine: Callable[[str], EngineClient]
    """Makes the client of the engine's API at a URL."""
    glyphs: Glyphs
    clock: Callable[[], float] = time.time
    """Seconds since 1970."""
    exists: Callable[[int], bool] = exists
    """Whether this node has a process of that id."""
    view: View = field(default_factory=View)

    @property
    def goes_on(self) -> bool:
        """Whether the launch shown lives on while no supervisor answers."""
        launch = self.view.launch
        if launch is None or launch.state not in (LaunchState.LAUNCHING, LaunchState.SERVING):
            return False
        left = [process for process in launch.processes if process.exit is None]
        return any(process.node or self.exists(process.pid) for process in left)
