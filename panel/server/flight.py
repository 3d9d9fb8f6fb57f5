"""Steps whose tokens the device samples: they are known here once the step has landed."""

from __future__ import annotations

from collections.abc import Sequence as Sequences
from typing import Protocol

import torch

from panel.server.plan import Plan
from panel.server.schedule import Choice
from panel.server.sequence import Sequence


class Flight(Protocol):
    """A step under way on the device."""

    def land(self) -> list[Choice]:
        """Wait for the step; return a choice for each sequence."""
        ...


class DeviceSampler(Protocol):
    """Samples where the logits are."""

    def serves(self, plan: Plan, sequences: Sequences[Sequence]) -> bool:
        """True where the device can do all that the requests of a plan ask for."""
        ...

    def sample(self, logits: torch.Tensor, sequences: Sequences[Sequence]) -> Flight:
        """Begin to sample a token from each row of logits, and to copy them here."""
        ...
