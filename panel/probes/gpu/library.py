"""The part of NVML that is used, under the names and with the types of `nvidia-ml-py`.

The module `pynvml` itself is one such library, a recording of a session is another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import pynvml

Handle = Any
"""`c_nvmlDevice_t`, a pointer."""
NEVER = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_DEPRECATED,
)
"""Answers that do not change as long as driver and card are the same."""


class Nvml(Protocol):
    """Every function may raise `pynvml.NVMLError`, and block for ever on a GPU that is lost."""

    def nvmlInit(self) -> None: ...  # noqa: N802
    def nvmlShutdown(self) -> None: ...  # noqa: N802
    def nvmlSystemGetDriverVersion(self) -> str: ...  # noqa: N802
    def nvmlSystemGetCudaDriverVersion(self) -> int: ...  # noqa: N802
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: N802
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle: ...  # noqa: N802
    def nvmlDeviceGetUUID(self, handle: Handle) -> str: ...  # noqa: N802
    def nvmlDeviceGetName(self, handle: Handle) -> str: ...  # noqa: N802
    def nvmlDeviceGetPciInfo(self, handle: Handle) -> Any: ...  # noqa: N802
    def nvmlDeviceGetUtilizationRates(self, handle: Handle) -> Any: ...  # noqa: N802
    def nvmlDeviceGetMemoryInfo(self, handle: Handle) -> Any: ...  # noqa: N802
    def nvmlDeviceGetPowerUsage(self, handle: Handle) -> int: ...  # noqa: N802
    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Handle) -> int: ...  # noqa: N802
    def nvmlDeviceGetTemperature(self, handle: Handle, sensor: int) -> int: ...  # noqa: N802
    def nvmlDeviceGetClockInfo(self, handle: Handle, clock: int) -> int: ...  # noqa: N802
    def nvmlDeviceGetMaxClockInfo(self, handle: Handle, clock: int) -> int: ...  # noqa: N802
    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Handle) -> int: ...  # noqa: N802
    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: Handle) -> int: ...  # noqa: N802
    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: Handle) -> int: ...  # noqa: N802
    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: Handle) -> int: ...  # noqa: N802
    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: Handle) -> int: ...  # noqa: N802
    def nvmlDeviceGetGpuMaxPcieLinkGeneration(self, handle: Handle) -> int: ...  # noqa: N802
    def nvmlDeviceGetPcieReplayCounter(self, handle: Handle) -> int: ...  # noqa: N802
    def nvmlDeviceGetPcieThroughput(self, handle: Handle, counter: int) -> int: ...  # noqa: N802
    def nvmlDeviceGetNvLinkState(self, handle: Handle, link: int) -> int: ...  # noqa: N802
    def nvmlDeviceGetTotalEccErrors(  # noqa: N802
        self, handle: Handle, error: int, counter: int
    ) -> int: ...
    def nvmlDeviceGetRemappedRows(self, handle: Handle) -> tuple[int, int, int, int]: ...  # noqa: N802
    def nvmlDeviceGetComputeRunningProcesses(self, handle: Handle) -> Sequence[Any]: ...  # noqa: N802
    def nvmlDeviceGetFieldValues(  # noqa: N802
        self, handle: Handle, fields: Sequence[tuple[int, int]]
    ) -> Sequence[Any]: ...
    def nvmlDeviceGetP2PStatus(self, one: Handle, other: Handle, index: int) -> int: ...  # noqa: N802
    def nvmlDeviceGetTopologyCommonAncestor(self, one: Handle, other: Handle) -> int: ...  # noqa: N802
    def nvmlDeviceGetSupportedEventTypes(self, handle: Handle) -> int: ...  # noqa: N802
    def nvmlDeviceRegisterEvents(  # noqa: N802
        self, handle: Handle, types: int, events: Any
    ) -> None: ...
    def nvmlEventSetCreate(self) -> Any: ...  # noqa: N802
    def nvmlEventSetWait_v2(self, events: Any, milliseconds: int) -> Any: ...  # noqa: N802


def real() -> Nvml:
    """Return the library itself; `nvmlInit` loads it."""
    return cast(Nvml, pynvml)
