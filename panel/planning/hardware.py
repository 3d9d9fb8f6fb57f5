"""The GPUs that a plan is for: those of the node, else those that the profile is made for."""

from __future__ import annotations

from collections.abc import Iterable

from panel.domain.flags import Hardware
from panel.domain.gpu import GpuSample

_SAME = 0.03
"""Drivers differ by so much in what they call the memory of one card."""


def at_hand(samples: Iterable[GpuSample], planned: Hardware | None) -> Hardware | None:
    """Return the node's GPUs, the smallest counting for all; without any, what is planned for.

    Samples tell neither compute capability nor links: the profile's count where memory agrees.
    """
    sizes = [sample.memory_total for sample in samples if sample.memory_total]
    if not sizes:
        return planned
    found = Hardware(gpus=len(sizes), memory=min(sizes))
    if planned is None or abs(planned.memory - found.memory) > _SAME * found.memory:
        return found
    return Hardware(
        gpus=found.gpus,
        memory=found.memory,
        capability=planned.capability,
        link=planned.link,
    )
