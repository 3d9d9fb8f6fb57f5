"""The NVIDIA driver, through NVML."""

from __future__ import annotations

from typing import NamedTuple

import pynvml

from panel.probes.check import Check
from panel.probes.gpu.library import Nvml
from panel.probes.gpu.topology import Pair, read_pairs


class Driver(NamedTuple):
    """What NVML says; `trouble` in words where it says nothing."""

    version: str = ""
    cuda: int | None = None
    """Newest major version of CUDA that it serves."""
    gpus: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()
    trouble: str = ""
    absent: bool = False
    """There is no driver on this node at all."""


def read_driver(nvml: Nvml) -> Driver:
    """Ask NVML, which must not have been initialised by this process before."""
    try:
        nvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Driver(trouble=str(error), absent=error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    try:
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        return Driver(
            version=nvml.nvmlSystemGetDriverVersion(),
            cuda=nvml.nvmlSystemGetCudaDriverVersion() // 1000,
            gpus=tuple(nvml.nvmlDeviceGetName(handle) for handle in handles),
            pairs=_pairs(nvml),
        )
    except pynvml.NVMLError as error:
        return Driver(trouble=str(error))
    finally:
        nvml.nvmlShutdown()


def _pairs(nvml: Nvml) -> tuple[Pair, ...]:
    try:
        return read_pairs(nvml)
    except pynvml.NVMLError:
        # A container or a virtual machine may hide how its GPUs are linked.
        return ()


def driver(found: Driver) -> Check:
    """Judge the driver."""
    if found.absent:
        text = "no NVIDIA driver: ranks compute on the CPU"
        return Check(name="driver", grade="info", text=text)
    if found.trouble:
        # After an upgrade of the driver's packages the old kernel module stays loaded.
        return Check(
            name="driver",
            grade="fail",
            text=f"NVML does not answer: {found.trouble}",
            mend="nvidia-smi; after an upgrade of the driver: reboot",
        )
    kinds = ", ".join(f"{found.gpus.count(kind)} x {kind}" for kind in dict.fromkeys(found.gpus))
    text = f"{found.version}, CUDA {found.cuda}, {kinds or 'no GPU'}"
    return Check(name="driver", grade="pass" if kinds else "warn", text=text)
