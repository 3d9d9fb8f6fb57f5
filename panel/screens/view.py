"""What the panel knows of the node, and what screens need to work: one of each a panel."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from panel.client import Client
from panel.domain.snapshot import PROTOCOL, LaunchView, Snapshot
from panel.talk import EngineClient
from panel.widgets.glyphs import Glyphs


@dataclass(frozen=True, slots=True)
class View:
    """The last snapshot, and why there is none newer when the supervisor is lost."""

    snapshot: Snapshot | None = None
    lost: str | None = None

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


@dataclass(slots=True)
class Desk:
    """Shared by all screens."""

    client: Client
    engine: Callable[[str], EngineClient]
    """Makes the client of the engine's API at a URL."""
    glyphs: Glyphs
    clock: Callable[[], float] = time.time
    """Seconds since 1970."""
    view: View = field(default_factory=View)
