"""Field values: counters that one call brings together, each with its own answer."""

from __future__ import annotations

from typing import Any, NamedTuple

import pynvml

from panel.probes.gpu.library import NEVER, Handle, Nvml
from panel.probes.gpu.readings import RECOVERY, Figures

WINDOW_S = 0.05
"""Between the two readings of the PCIe counters. They have 32 bits on cards of today, and a link
of generation 5 with 16 lanes fills those in 68 ms."""
_FULL_LINK = 64e9
_ALL_LINKS = 0xFFFFFFFF
_KINDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of the value's union by its type."""
_RANGE = {"uiVal": 1 << 32, "usVal": 1 << 16}
"""Where counters of a type begin anew; all others never get there."""


class Rate(NamedTuple):
    """A counter whose difference over time is shown."""

    name: str
    field: int
    scope: int
    unit: float
    """What one count is, in bytes."""


# Seen from the GPU: what it receives is `rx`.
PCIE = (
    Rate("pcie_tx", pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0, 1),
    Rate("pcie_rx", pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0, 1),
)
NVLINK = (
    Rate("nvlink_tx", pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS, 1024),
    Rate("nvlink_rx", pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS, 1024),
)
HELD: dict[int, str] = {
    pynvml.NVML_FI_DEV_PERF_POLICY_POWER: "power",
    pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL: "heat",
    pynvml.NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT: "board",
    pynvml.NVML_FI_DEV_PERF_POLICY_RELIABILITY: "reliability",
}
"""Time lost to each reason, nanoseconds."""
STATE_FIELDS = (
    *((field, 0) for field in HELD),
    (pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0),
)


class Value(NamedTuple):
    """One field."""

    value: float
    t_us: int
    """When NVML read it, microseconds."""
    range: int | None
    """Where the counter begins anew."""


Values = dict[int, Value]
"""By field."""


class Fields:
    """Reads a list of fields of one GPU; those that it does not have are asked for once."""

    def __init__(self, wanted: tuple[tuple[int, int], ...]) -> None:
        self._wanted = wanted

    def __bool__(self) -> bool:
        """Whether there is any left to read."""
        return bool(self._wanted)

    def read(self, nvml: Nvml, gpu: Handle) -> Values:
        """Return the values that there are."""
        if not self._wanted:
            return {}
        answers = nvml.nvmlDeviceGetFieldValues(gpu, self._wanted)
        self._wanted = tuple(
            wanted
            for wanted, answer in zip(self._wanted, answers, strict=True)
            if answer.nvmlReturn not in NEVER
        )
        return {
            answer.fieldId: _value(answer)
            for answer in answers
            if answer.nvmlReturn == pynvml.NVML_SUCCESS
        }


def wanted(counters: tuple[Rate, ...]) -> tuple[tuple[int, int], ...]:
    """Return the fields of some counters with their scopes."""
    return tuple((rate.field, rate.scope) for rate in counters)


def rates(counters: tuple[Rate, ...], before: Values, now: Values) -> Figures:
    """Return bytes a second between two readings.

    Left out where it cannot be told: after a reset, or where a counter may have gone round more
    than once because the readings lie too far apart.
    """
    figures: Figures = {}
    for name, field, _, unit in counters:
        if field not in before or field not in now:
            continue
        first, second = before[field], now[field]
        seconds = (second.t_us - first.t_us) / 1e6
        grown = second.value - first.value
        if second.range is not None:
            grown %= second.range
            if seconds * _FULL_LINK > second.range:
                continue
        if seconds > 0 and grown >= 0:
            figures[name] = round(grown * unit / seconds)
    return figures


def state_figures(values: Values) -> Figures:
    """Return what the fields of state say."""
    held = {HELD[field]: round(values[field].value / 1e9, 1) for field in HELD if field in values}
    action = values.get(pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)
    code = int(action.value) if action else 0
    return {"held": held, "recovery": RECOVERY.get(code, f"action {code}") if code else ""}


def _value(answer: Any) -> Value:
    kind = _KINDS[answer.valueType]
    return Value(float(getattr(answer.value, kind)), answer.timestamp, _RANGE.get(kind))
