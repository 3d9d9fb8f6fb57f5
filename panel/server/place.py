"""What a rank is given: where it stands, what it loads, what it shares."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

import torch

from panel.server.draft.shape import DraftShape
from panel.server.location import Table
from panel.server.memory import Demand
from panel.server.options import Options
from panel.server.parallel import Shard
from panel.server.reporting import Events
from panel.server.shape import ModelConfig
from panel.server.shared import Shared


@dataclass(frozen=True, slots=True)
class Place:
    """Made before the fork, but for what depends on the rank."""

    options: Options
    config: ModelConfig
    folder: Path
    shard: Shard
    device: torch.device
    dtype: torch.dtype
    shared: Shared
    events: Events
    location: Table
    """The experts' places at the start."""
    draft: DraftShape | None
    """The draft head, where there is one."""
    store: socket.socket | None
    """Listening socket of the store through which torch.distributed meets; None without it."""

    @property
    def demand(self) -> Demand:
        """What this rank's memory goes to."""
        on_gpu = self.device.type == "cuda"
        return Demand(
            self.config, self.shard, self.options, self.dtype.itemsize, on_gpu, self.draft
        )
