"""The sampler on a session that was recorded on two H200."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from panel.domain.gpu import GpuSample
from panel.probes.gpu.fields import PCIE, Value, rates
from panel.probes.gpu.recording import Player, Recorder, Recording
from panel.probes.gpu.sampler import SLOW_EVERY, Fault, Sampler, Tick, watch_faults

SESSION = Path(__file__).parent / "data/nvml-h200-x2.json"
GIB = 1 << 30


class Session:
    """A sampler on the recording, which goes on as it did."""

    def __init__(self) -> None:
        self.nvml = Player(Recording.load(SESSION))
        self.sampler = Sampler(self.nvml, self.pass_window)

    def pass_window(self, seconds: float) -> None:
        assert seconds == pytest.approx(0.05)
        self.nvml.tick += 1

    def tick(self) -> Tick:
        found = self.sampler.tick()
        self.nvml.tick += 1
        return found

    def all(self) -> list[tuple[GpuSample, ...]]:
        count = self.nvml.recording.ticks // 2
        return [self.tick().samples for _ in range(count)]


@pytest.fixture
def session() -> Session:
    return Session()


def test_an_idle_gpu(session: Session) -> None:
    session.tick()
    gpu = session.tick().samples[0]
    assert gpu.name == "NVIDIA H200"
    assert gpu.uuid == "GPU-00000000-0000-4000-8000-000000000000"
    assert gpu.bus_id == "0000:00:06.0"
    assert (gpu.util, gpu.temperature, gpu.clock) == (0, gpu.temperature, 345)
    assert gpu.power == pytest.approx(81, abs=2)
    assert (gpu.power_limit, gpu.clock_max, gpu.memory_total) == (700.0, 1980, 150754820096)
    assert (gpu.pcie_gen, gpu.pcie_width, gpu.pcie_gen_max, gpu.pcie_width_max) == (5, 16, 5, 16)
    assert (gpu.nvlinks, gpu.nvlinks_down) == (18, 0)
    assert (gpu.ecc, gpu.remapped, gpu.remap_pending, gpu.replays) == (0, 0, False, 0)
    assert gpu.reasons == ("idle",)
    assert (gpu.trouble, gpu.recovery) == ("", "")


def test_load_shows(session: Session) -> None:
    samples = [each[0] for each in session.all()]
    assert max(gpu.util or 0 for gpu in samples) == 100
    assert max(gpu.power or 0 for gpu in samples) > 690
    assert any(gpu.reasons == ("power",) for gpu in samples)
    assert samples[-1].held["power"] > 3
    assert samples[0].held["power"] < samples[-1].held["power"]


def test_traffic_beyond_the_range_of_the_counters(session: Session) -> None:
    # The load copied 52.7 GB/s to GPU 0; the link carried some eight per cent more.
    samples = session.all()
    assert 50e9 < max(each[0].pcie_rx or 0 for each in samples) < 60e9
    assert max(each[1].pcie_rx or 0 for each in samples) < 1e9


def test_nothing_slow_is_asked_each_second(session: Session) -> None:
    session.tick()
    session.nvml.calls.clear()
    session.tick()
    asked = {call.split()[0] for call in session.nvml.calls}
    assert "nvmlDeviceGetPcieThroughput" not in asked
    assert "nvmlDeviceGetMaxClockInfo" not in asked
    assert "nvmlDeviceGetPcieReplayCounter" not in asked
    # A window is read of every second GPU only.
    windows = [call for call in session.nvml.calls if call.startswith("nvmlDeviceGetFieldValues")]
    assert windows == ["nvmlDeviceGetFieldValues gpu1 2"] * 2


def test_what_a_gpu_lacks_is_asked_once(session: Session) -> None:
    session.nvml.broken = {
        "nvmlDeviceGetTotalEccErrors": pynvml.NVML_ERROR_NOT_SUPPORTED,
        "nvmlDeviceGetClockInfo": pynvml.NVML_ERROR_NO_PERMISSION,
    }
    for _ in range(SLOW_EVERY + 1):
        gpu = session.tick().samples[0]
    assert (gpu.ecc, gpu.clock, gpu.trouble) == (None, None, "")
    for name in session.nvml.broken:
        asked = [call for call in session.nvml.calls if call.startswith(f"{name} gpu0")]
        assert len(asked) == 1


def test_without_counters_the_sampled_traffic_is_shown(session: Session) -> None:
    calls = session.nvml.recording.calls
    for gpu in (0, 1):
        for field in (197, 198):
            calls.pop(f"field gpu{gpu} {field} 0")
    gpus = session.tick().samples
    assert all(gpu.pcie_rx is not None and gpu.pcie_rx > 0 for gpu in gpus)
    session.nvml.calls.clear()
    session.tick()
    assert not any("Throughput" in call for call in session.nvml.calls)


def test_a_lost_gpu_keeps_its_last_figures_and_leaves_the_other_alone(session: Session) -> None:
    before = session.tick().samples[1]
    session.nvml.broken = {"gpu1": pynvml.NVML_ERROR_GPU_IS_LOST}
    first, lost = session.tick().samples
    assert first.trouble == ""
    assert lost.trouble == "the GPU has fallen off the bus"
    assert lost.memory_total == before.memory_total
    session.nvml.broken = {}
    assert session.tick().samples[1].trouble == ""


def test_a_gpu_that_never_answered_is_named() -> None:
    nvml = Player(Recording.load(SESSION))
    nvml.broken = {"gpu1": pynvml.NVML_ERROR_GPU_IS_LOST}
    found = Sampler(nvml, lambda _: None).tick()
    assert [gpu.index for gpu in found.samples] == [0]
    assert found.missing == ("GPU 1: the GPU has fallen off the bus",)


@pytest.mark.parametrize(
    ("kind", "data", "fault"),
    [
        (pynvml.nvmlEventTypeXidCriticalError, 79, Fault(1, "Xid 79", xid=79)),
        (pynvml.nvmlEventTypeDoubleBitEccError, 0, Fault(1, "a double-bit memory error")),
    ],
)
def test_faults(kind: int, data: int, fault: Fault) -> None:
    nvml = Player(Recording.load(SESSION))
    nvml.faults.put((1, kind, data))
    assert next(watch_faults(nvml)) == fault


def test_gpus_without_events_end_the_watch() -> None:
    nvml = Player(Recording.load(SESSION))
    nvml.broken = {"nvmlDeviceRegisterEvents": pynvml.NVML_ERROR_NOT_SUPPORTED}
    assert list(watch_faults(nvml)) == []


def _values(tx: float, t_us: int, wraps: int | None) -> dict[int, Value]:
    return {rate.field: Value(tx, t_us, wraps) for rate in PCIE}


@pytest.mark.parametrize(
    ("before", "now", "seconds", "wraps", "rate"),
    [
        (0, 1000, 0.05, 1 << 32, 20000),
        ((1 << 32) - 500, 500, 0.05, 1 << 32, 20000),
        (0, 1000, 1.0, 1 << 32, None),
        (0, 1000, 1.0, None, 1000),
        (1000, 0, 1.0, None, None),
        (0, 1000, 0.0, None, None),
    ],
)
def test_rates(
    before: float, now: float, seconds: float, wraps: int | None, rate: int | None
) -> None:
    figures = rates(PCIE, _values(before, 0, wraps), _values(now, int(seconds * 1e6), wraps))
    assert figures.get("pcie_rx") == rate


def test_a_recording_of_a_recording_is_the_same() -> None:
    player = Player(Recording.load(SESSION))
    recorder = Recorder(player)

    def window(_: float) -> None:
        player.tick += 1
        recorder.tick += 1

    first = Sampler(recorder, window)
    samples = []
    for _ in range(4):
        samples.append(first.tick())
        window(0)
    again = Player(recorder.recording())

    def replayed(_: float) -> None:
        again.tick += 1

    second = Sampler(again, replayed)
    for found in samples:
        assert second.tick() == found
        replayed(0)


def test_the_session_holds_no_identity() -> None:
    text = SESSION.read_text()
    assert '"GPU-0000000' in text
    assert "Serial" not in text


@pytest.mark.parametrize("step", [Sampler, watch_faults])
def test_a_missing_driver_is_an_error_of_nvml(step: Callable[[Player], object]) -> None:
    nvml = Player(Recording.load(SESSION))
    nvml.broken = {
        "nvmlDeviceGetCount": pynvml.NVML_ERROR_UNINITIALIZED,
        "nvmlEventSetCreate": pynvml.NVML_ERROR_UNINITIALIZED,
    }
    with pytest.raises(pynvml.NVMLError):
        list(step(nvml))  # type: ignore[call-overload]
