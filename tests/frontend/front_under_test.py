"""What a test gets of a front end."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from panel.server.frontend.link import Link
from panel.server.heartbeat import HeartbeatFile
from panel.server.phases import Phase
from tests.frontend.scripted_engine import ScriptedEngine


@dataclass
class Front:
    """A front end whose parts the test can reach."""

    engine: ScriptedEngine
    link: Link
    heartbeats: HeartbeatFile
    client: httpx.AsyncClient

    def beat(self, phase: Phase = Phase.SERVING) -> None:
        """Let every rank beat in a phase."""
        for rank in range(self.heartbeats.world_size):
            self.heartbeats.beat(rank, phase, step=1)
