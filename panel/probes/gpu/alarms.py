"""From a GPU's figures to what an operator should know. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from panel.domain.gpu import GpuAlarm, GpuFault, GpuSample
from panel.probes.gpu.xids import explain

LOAD = 20
"""Per cent of utilisation from which a GPU counts as busy; an idle link slows down by design."""
REPLAYS = 10
"""Since the launch; a few happen when the link changes its speed."""
HELD_SHARE = 0.05
"""Share of the time since launch that is worth an alarm."""
HELD_LEAST_S = 5.0
_Severity = Literal["note", "warning", "failure"]
_CAUSES: dict[str, tuple[str, _Severity, str, str]] = {
    "power": ("power", "note", "held down by its power limit", "nvidia-smi -pl WATTS raises it"),
    "heat": ("heat", "warning", "held down by heat", "check fans, air flow, the card beside it"),
    "brake": ("brake", "warning", "held down by the power brake", "check the power supply"),
    "board": ("power", "warning", "held down by the board's limit", "check the power supply"),
    "reliability": ("power", "note", "held down by its voltage limit", "normal at full clocks"),
}
"""By reason: kind, severity, what it is, what to do. A power limit that is reached is no fault."""


def alarms(
    gpu: GpuSample,
    *,
    replays: int,
    held: dict[str, float],
    seconds: float,
    faults: Sequence[GpuFault],
) -> tuple[GpuAlarm, ...]:
    """Return what is wrong with a GPU, worst first.

    `replays` and `held` (seconds by reason) are since the launch, `seconds` ago; so are `faults`.
    """
    found = [*_faults(gpu, faults), *_memory(gpu), *_link(gpu, replays), *_held(gpu, held, seconds)]
    order = ("failure", "warning", "note")
    return tuple(sorted(found, key=lambda alarm: order.index(alarm.severity)))


def since(now: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    """Return how much each counter has grown; one that was reset counts from zero."""
    grown = {
        name: round(value - before.get(name, 0.0), 1) if value >= before.get(name, 0.0) else value
        for name, value in now.items()
    }
    return {name: value for name, value in grown.items() if value}


def _faults(gpu: GpuSample, faults: Sequence[GpuFault]) -> Iterator[GpuAlarm]:
    for fault in faults:
        if fault.xid is None:
            do = "see the kernel log; stop the gang and reset the GPU"
            yield GpuAlarm(kind="xid", severity="failure", text=fault.text, do=do)
            continue
        xid = explain(fault.xid)
        text = f"Xid {fault.xid}: {xid.meaning}"
        yield GpuAlarm(kind="xid", severity=xid.severity, text=text, do=xid.do)
    if gpu.recovery:
        text = f"the driver wants this: {gpu.recovery}"
        yield GpuAlarm(kind="recovery", severity="failure", text=text, do=gpu.recovery)


def _memory(gpu: GpuSample) -> Iterator[GpuAlarm]:
    if gpu.ecc:
        text = f"{gpu.ecc} uncorrected memory errors since the driver was loaded"
        do = "reset the GPU; the card goes back if it happens again"
        yield GpuAlarm(kind="ecc", severity="failure", text=text, do=do)
    if gpu.remap_failed:
        text = "a broken memory row could not be replaced"
        yield GpuAlarm(kind="remap", severity="failure", text=text, do="the card goes back")
    elif gpu.remap_pending:
        text = "a memory row waits to be replaced"
        do = "reset the GPU at the next pause"
        yield GpuAlarm(kind="remap", severity="warning", text=text, do=do)


def _link(gpu: GpuSample, replays: int) -> Iterator[GpuAlarm]:
    width, most = gpu.pcie_width, gpu.pcie_width_max
    if width and most and width < most:
        text = f"PCIe link is x{width}, should be x{most}"
        do = "check slot, riser and BIOS bifurcation"
        yield GpuAlarm(kind="pcie_width", severity="warning", text=text, do=do)
    gen, best = gpu.pcie_gen, gpu.pcie_gen_max
    if gen and best and gen < best and (gpu.util or 0) >= LOAD:
        text = f"PCIe runs at generation {gen} under load, should be {best}"
        do = "check riser and BIOS; pcie_aspm=off, reseat the card"
        yield GpuAlarm(kind="pcie_gen", severity="warning", text=text, do=do)
    elif best and gpu.pcie_gen_card and best < gpu.pcie_gen_card:
        text = f"the slot gives PCIe {best}, the card could {gpu.pcie_gen_card}"
        yield GpuAlarm(kind="pcie_gen", severity="note", text=text, do="a better slot, or BIOS")
    if replays >= REPLAYS:
        text = f"{replays} PCIe packets were sent again since the launch"
        do = "a bad contact: reseat card and riser, or lower the link's generation in the BIOS"
        yield GpuAlarm(kind="replays", severity="warning", text=text, do=do)
    if gpu.nvlinks and gpu.nvlinks_down:
        total = gpu.nvlinks + gpu.nvlinks_down
        text = f"{gpu.nvlinks_down} of {total} NVLinks are down"
        yield GpuAlarm(kind="nvlink", severity="warning", text=text, do="nvidia-smi nvlink -s")


def _held(gpu: GpuSample, held: dict[str, float], seconds: float) -> Iterator[GpuAlarm]:
    for reason, (kind, severity, words, do) in _CAUSES.items():
        lost = held.get(reason, 0.0)
        lasting = lost >= max(HELD_LEAST_S, HELD_SHARE * seconds)
        if reason in gpu.reasons or lasting:
            spent = f" for {lost:.0f} s of {seconds:.0f} s" if lasting else " now"
            yield GpuAlarm(kind=kind, severity=severity, text=f"clocks {words}{spent}", do=do)
