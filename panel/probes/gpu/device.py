"""One GPU under observation: what it can say, what it said last."""

from __future__ import annotations

from collections.abc import Callable

import pynvml

from panel.domain.gpu import GpuSample
from panel.probes.gpu.fields import (
    NVLINK,
    PCIE,
    STATE_FIELDS,
    Fields,
    Values,
    rates,
    state_figures,
    wanted,
)
from panel.probes.gpu.library import NEVER, Handle, Nvml
from panel.probes.gpu.readings import FAST, ONCE, SLOW, Figures, Reading, sampled_pcie


def bus_id(text: str) -> str:
    """Return a PCI address as the kernel writes it: `0000:06:00.0`.

    NVML writes eight digits of domain, Xid lines leave the function out.
    """
    domain, bus, device = text.lower().rsplit(":", 2)
    device, _, function = device.partition(".")
    return f"{int(domain, 16):04x}:{bus}:{device}.{function or '0'}"


class Device:
    """Belongs to one thread. What the GPU does not have is asked for once."""

    def __init__(self, nvml: Nvml, index: int) -> None:
        """Find the GPU. Raises `NVMLError`."""
        self._nvml = nvml
        self._handle: Handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self.index = index
        self.uuid = nvml.nvmlDeviceGetUUID(self._handle)
        self.bus_id = bus_id(nvml.nvmlDeviceGetPciInfo(self._handle).busId)
        self.name = nvml.nvmlDeviceGetName(self._handle)
        self._once, self._fast, self._slow = list(ONCE), list(FAST), list(SLOW)
        self._pcie, self._nvlink = Fields(wanted(PCIE)), Fields(wanted(NVLINK))
        self._state = Fields(STATE_FIELDS)
        self._window = self._pcie.read(nvml, self._handle)
        self._nvlink_values: Values = {}
        self._figures: Figures = {}
        self._trouble = ""

    def open_window(self) -> None:
        """Read the PCIe counters; the next `sample` reads them again and shows the difference."""
        self._trouble = self._guarded(self._open_window)

    def sample(self, slow: bool) -> GpuSample:
        """Read the fast figures, with `slow` also the others; a lost GPU keeps its last ones."""
        trouble = self._trouble or self._guarded(lambda: self._read_all(slow))
        self._trouble = ""
        return GpuSample(
            index=self.index,
            uuid=self.uuid,
            bus_id=self.bus_id,
            name=self.name,
            trouble=trouble,
            **self._figures,
        )

    def _read_all(self, slow: bool) -> None:
        if self._window:
            now = self._pcie.read(self._nvml, self._handle)
            self._figures |= rates(PCIE, self._window, now)
            self._window = {}
        self._read(self._once)
        self._once.clear()
        self._read(self._fast)
        if slow:
            self._read(self._slow)
            if not self._pcie:
                self._figures |= _allowed(sampled_pcie, self._nvml, self._handle) or {}
            self._figures |= state_figures(self._state.read(self._nvml, self._handle))
            before, self._nvlink_values = (
                self._nvlink_values,
                self._nvlink.read(self._nvml, self._handle),
            )
            self._figures |= rates(NVLINK, before, self._nvlink_values)

    def _open_window(self) -> None:
        self._window = self._pcie.read(self._nvml, self._handle)

    def _read(self, readings: list[Reading]) -> None:
        for reading in tuple(readings):
            figures = _allowed(reading, self._nvml, self._handle)
            if figures is None:
                readings.remove(reading)
            else:
                self._figures |= figures

    @staticmethod
    def _guarded(read: Callable[[], None]) -> str:
        try:
            read()
        except pynvml.NVMLError as error:
            return nvml_words(error)
        return ""


def _allowed(reading: Reading, nvml: Nvml, gpu: Handle) -> Figures | None:
    """Return the figures; None where this GPU will never have them."""
    try:
        return reading(nvml, gpu)
    except pynvml.NVMLError as error:
        if error.value in NEVER:
            return None
        raise


def nvml_words(error: pynvml.NVMLError) -> str:
    """Return what an error of NVML means."""
    if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
        return "the GPU has fallen off the bus"
    if error.value == pynvml.NVML_ERROR_RESET_REQUIRED:
        return "the GPU has to be reset"
    return f"NVML: {error}"
