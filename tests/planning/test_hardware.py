"""Which GPUs a plan is for."""

from __future__ import annotations

from panel.domain.flags import Hardware
from panel.domain.gpu import GpuSample
from panel.planning.hardware import at_hand
from panel.planning.scene import GIB

PLANNED = Hardware(gpus=8, memory=96 * GIB, capability="12.0", link="pcie")


def sample(index: int, gib: float | None) -> GpuSample:
    total = None if gib is None else round(gib * GIB)
    return GpuSample(
        index=index, uuid=f"GPU-{index}", bus_id=f"0000:0{index}:00.0", name="x", memory_total=total
    )


def test_without_gpus_the_profile_counts() -> None:
    assert at_hand([], PLANNED) is PLANNED
    assert at_hand([sample(0, None)], PLANNED) is PLANNED
    assert at_hand([], None) is None


def test_the_nodes_own_gpus_count_and_the_smallest_of_them() -> None:
    assert at_hand([sample(0, 95.6), sample(1, 95.2)], PLANNED) == Hardware(
        gpus=2, memory=round(95.2 * GIB), capability="12.0", link="pcie"
    )


def test_other_gpus_than_planned_for_have_nothing_of_the_profile() -> None:
    assert at_hand([sample(0, 140.0)], PLANNED) == Hardware(gpus=1, memory=140 * GIB)
