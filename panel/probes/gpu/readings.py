"""What is asked of a GPU once, each second, and now and then: by what it costs.

A call takes 2 to 60 µs; slower ones were measured on H200: 0.1 ms for the link's width, 0.2 to 0.5
for the replay counter, 2 for the highest clock, 20 for each direction of sampled PCIe traffic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

from panel.domain.gpu import GpuProcess
from panel.probes.gpu.library import Handle, Nvml

Figures = dict[str, Any]
"""Values by the names of `GpuSample`'s fields."""
Reading = Callable[[Nvml, Handle], Figures]

REASONS: dict[int, str] = {
    pynvml.nvmlClocksEventReasonGpuIdle: "idle",
    pynvml.nvmlClocksEventReasonUserDefinedClocks: "locked",
    pynvml.nvmlClocksEventReasonSwPowerCap: "power",
    pynvml.nvmlClocksEventReasonSyncBoost: "sync",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "heat",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "heat",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "brake",
}
"""Bits of the clocks event reasons. `HwSlowdown` only says that one of the last two is set."""
RECOVERY: dict[int, str] = {
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "reset the GPU",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "reboot the node",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "drain peer-to-peer traffic",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "drain and reset the GPU",
}
_MOST_NVLINKS = 18


def _utilisation(nvml: Nvml, gpu: Handle) -> Figures:
    return {"util": nvml.nvmlDeviceGetUtilizationRates(gpu).gpu}


def _memory(nvml: Nvml, gpu: Handle) -> Figures:
    found = nvml.nvmlDeviceGetMemoryInfo(gpu)
    return {"memory_used": found.used, "memory_total": found.total}


def _power(nvml: Nvml, gpu: Handle) -> Figures:
    return {"power": nvml.nvmlDeviceGetPowerUsage(gpu) / 1000}


def _temperature(nvml: Nvml, gpu: Handle) -> Figures:
    return {"temperature": nvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU)}


def _clock(nvml: Nvml, gpu: Handle) -> Figures:
    return {"clock": nvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)}


def _reasons(nvml: Nvml, gpu: Handle) -> Figures:
    bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)
    return {"reasons": tuple(dict.fromkeys(word for bit, word in REASONS.items() if bits & bit))}


def _link(nvml: Nvml, gpu: Handle) -> Figures:
    return {
        "pcie_gen": nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),
        "pcie_width": nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
    }


def _link_most(nvml: Nvml, gpu: Handle) -> Figures:
    return {
        "pcie_gen_max": nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu),
        "pcie_width_max": nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu),
    }


def _card_gen(nvml: Nvml, gpu: Handle) -> Figures:
    return {"pcie_gen_card": nvml.nvmlDeviceGetGpuMaxPcieLinkGeneration(gpu)}


def _power_limit(nvml: Nvml, gpu: Handle) -> Figures:
    return {"power_limit": nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000}


def _clock_max(nvml: Nvml, gpu: Handle) -> Figures:
    return {"clock_max": nvml.nvmlDeviceGetMaxClockInfo(gpu, pynvml.NVML_CLOCK_SM)}


def _replays(nvml: Nvml, gpu: Handle) -> Figures:
    return {"replays": nvml.nvmlDeviceGetPcieReplayCounter(gpu)}


def _ecc(nvml: Nvml, gpu: Handle) -> Figures:
    errors = nvml.nvmlDeviceGetTotalEccErrors(
        gpu, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    )
    return {"ecc": errors}


def _rows(nvml: Nvml, gpu: Handle) -> Figures:
    _, uncorrected, pending, failed = nvml.nvmlDeviceGetRemappedRows(gpu)
    return {"remapped": uncorrected, "remap_pending": bool(pending), "remap_failed": bool(failed)}


def _nvlinks(nvml: Nvml, gpu: Handle) -> Figures:
    states = []
    for link in range(_MOST_NVLINKS):
        try:
            states.append(nvml.nvmlDeviceGetNvLinkState(gpu, link))
        except pynvml.NVMLError_InvalidArgument:
            # The card has fewer.
            break
    return {"nvlinks": sum(states), "nvlinks_down": len(states) - sum(states)}


def _processes(nvml: Nvml, gpu: Handle) -> Figures:
    found = nvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    return {"processes": tuple(GpuProcess(pid=p.pid, memory=p.usedGpuMemory) for p in found)}


def sampled_pcie(nvml: Nvml, gpu: Handle) -> Figures:
    """Read the traffic of the last 20 ms, which takes as long for each direction.

    For GPUs without counters of bytes, and never in the loop of every second.
    """
    return {
        "pcie_tx": 1000.0 * nvml.nvmlDeviceGetPcieThroughput(gpu, pynvml.NVML_PCIE_UTIL_TX_BYTES),
        "pcie_rx": 1000.0 * nvml.nvmlDeviceGetPcieThroughput(gpu, pynvml.NVML_PCIE_UTIL_RX_BYTES),
    }


ONCE: tuple[Reading, ...] = (_link_most, _card_gen, _clock_max)
FAST: tuple[Reading, ...] = (_utilisation, _memory, _power, _temperature, _clock, _reasons)
SLOW: tuple[Reading, ...] = (_link, _power_limit, _replays, _ecc, _rows, _nvlinks, _processes)
