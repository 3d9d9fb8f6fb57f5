"""What the numbers of NVIDIA's Xid reports mean, and what an operator does about them."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Xid(NamedTuple):
    """One number."""

    meaning: str
    do: str
    severity: Literal["note", "warning", "failure"] = "failure"
    kind: str | None = None
    """The kind of failure that it is, by the names of triage."""


_SOFTWARE = "look at the engine's own error first: a kernel did this"
_REBOOT = "reboot the node; if it comes back on the same GPU: reseat it, check power and cooling"
_RESET = "stop the gang, nvidia-smi --gpu-reset -i GPU"
_MEMORY = "drain the GPU and reset it; the card goes back if it happens again"
_LINK = "reboot; pcie_aspm=off pcie_port_pm=off; check slot, riser, power and heat"

XIDS: dict[int, Xid] = {
    8: Xid("a kernel did not end: the GPU is probably locked", _REBOOT, kind="xid_gsp"),
    13: Xid("a kernel made an error (graphics engine exception)", _SOFTWARE),
    31: Xid("a kernel touched memory that it may not (MMU fault)", _SOFTWARE, kind="cuda_ima"),
    32: Xid("a corrupted command stream", _SOFTWARE),
    38: Xid("a fault of the driver's firmware", "update the driver"),
    43: Xid("a channel was stopped after an error of its program", _SOFTWARE, "warning"),
    45: Xid("channels were cleaned up: another error came first", _SOFTWARE, "note"),
    48: Xid("an uncorrectable memory error (double bit)", _MEMORY, kind="xid_ecc"),
    61: Xid("the GPU's internal microcontroller stopped", _RESET, kind="xid_gsp"),
    62: Xid("the GPU's internal microcontroller halted", _RESET, kind="xid_gsp"),
    63: Xid(
        "a memory row was marked for replacement", "reset the GPU at the next pause", "warning"
    ),
    64: Xid("a memory row could not be replaced", "the card goes back", kind="xid_ecc"),
    69: Xid("a kernel made an error (class error)", _SOFTWARE),
    74: Xid("an error on NVLink", "check nvidia-smi nvlink -e; reseat the bridge or the board"),
    79: Xid("the GPU has fallen off the bus", _LINK, kind="xid_79"),
    92: Xid("many corrected memory errors", "watch for remapped rows", "warning"),
    94: Xid("a memory error that hit one program only", _MEMORY, kind="xid_ecc"),
    95: Xid("a memory error that spread: all programs are affected", _MEMORY, kind="xid_ecc"),
    109: Xid("a context switch timed out", _RESET, kind="xid_gsp"),
    119: Xid("the GPU's system processor does not answer", _REBOOT, kind="xid_gsp"),
    120: Xid("an error of the GPU's system processor", _REBOOT, kind="xid_gsp"),
    122: Xid("the SPI flash of the GPU failed", "update the firmware, or the card goes back"),
    137: Xid("NVLink found an error of a peer's memory access", _SOFTWARE),
    140: Xid("an unrecovered memory error", _MEMORY, kind="xid_ecc"),
    143: Xid("the GPU did not start", _REBOOT),
    154: Xid("the driver asks for a recovery action", "do what the line says"),
    171: Xid("an uncorrectable error in HBM", _MEMORY, kind="xid_ecc"),
    175: Xid("the GPU's system processor reports a fault", _REBOOT, kind="xid_gsp"),
}


def explain(number: int) -> Xid:
    """Return what a number means; for one that is not known, where to look."""
    return XIDS.get(number) or Xid(
        f"Xid {number}", "see the table of Xid errors in NVIDIA's documentation", "warning"
    )
