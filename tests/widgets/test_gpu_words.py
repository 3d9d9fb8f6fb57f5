"""GPUs in a few cells, and which rank is slow."""

from __future__ import annotations

from typing import Any

import pytest

from panel.domain.flags import Request
from panel.domain.gpu import Gpu, GpuAlarm, GpuSample
from panel.domain.snapshot import Host, LaunchView, ProcessView, Snapshot, Supervisor
from panel.domain.states import LaunchState, ProcessState
from panel.widgets import gpu_words
from panel.widgets.slow_rank import slow_rank


def gpu(index: int = 0, **more: Any) -> Gpu:
    of_gpu = {name: more.pop(name) for name in ("age", "alarms", "rank") if name in more}
    usual: dict[str, Any] = {"util": 90, "clock": 2000, "pcie_gen": 5, "pcie_width": 16}
    sample = GpuSample(index=index, uuid=f"GPU-{index}", bus_id="", name="H200", **(usual | more))
    return Gpu(sample=sample, **({"rank": index} | of_gpu))


def node(*ranks: dict[str, Any], gpus: tuple[Gpu, ...] = ()) -> Snapshot:
    """Return a serving node whose ranks differ in these fields."""
    usual: dict[str, Any] = {"pid": 1, "state": ProcessState.SERVING, "step": 100, "cpu": 20.0}
    processes = tuple(
        ProcessView(source=f"rank-{rank}", rank=rank, **(usual | more))
        for rank, more in enumerate(ranks)
    )
    return Snapshot(
        seq=1,
        supervisor=Supervisor(pid=1, version="0", started_unix=0.0, home="", socket=""),
        host=Host(name="n", cpus=1, load=0.0, memory_total=1, memory_available=1, gpu_note=""),
        gpus=gpus,
        launch=LaunchView(
            id=1, uuid="u", request=Request(profile="p"), engine="builtin", version="0",
            state=LaunchState.SERVING, world_size=len(ranks), t0_unix=0.0, t=9.0, url="",
            processes=processes,
        ),
    )  # fmt: skip


def test_what_a_gpu_does_not_say_is_a_dash() -> None:
    silent = GpuSample(index=0, uuid="", bus_id="", name="")
    words = [
        gpu_words.percent(silent.util), gpu_words.memory(silent), gpu_words.number(silent.power),
        gpu_words.of_limit(silent.power, silent.power_limit), gpu_words.link(silent),
        gpu_words.traffic(silent.pcie_rx, silent.pcie_tx),
    ]  # fmt: skip
    assert set(words) == {"-"}


def test_figures_in_their_cells() -> None:
    sample = GpuSample(index=0, uuid="", bus_id="", name="", util=0, memory_used=88 << 30,
                       memory_total=96 << 30, pcie_gen=5, pcie_width=16)  # fmt: skip
    assert gpu_words.percent(sample.util) == "0%"
    assert gpu_words.memory(sample) == "88/96G"
    assert gpu_words.link(sample) == "5x16"
    assert gpu_words.of_limit(412.4, 600.0) == "412/600"
    assert gpu_words.traffic(1.24e9, None) == "1.2/-"
    assert [gpu_words.gigabytes(rate) for rate in (0, 9.96e9, 57.6e9)] == ["0.0", "10", "58"]


def alarm(severity: Any, kind: str = "pcie_width", text: str = "PCIe link is x8") -> GpuAlarm:
    return GpuAlarm(kind=kind, severity=severity, text=text, do="")


@pytest.mark.parametrize(("alarms", "room", "words"), [
    ((alarm("note"),), 80, ""),
    ((alarm("warning"),), 15, "PCIe link is x8"),
    ((alarm("warning"),), 14, "link too narrow"),
    ((alarm("failure", "xid", "Xid 79: the GPU has fallen off the bus"),), 15, "Xid 79"),
    ((), 80, ""),
])  # fmt: skip
def test_alarms_in_the_room_there_is(alarms: tuple[GpuAlarm, ...], room: int, words: str) -> None:
    assert gpu_words.in_words(gpu(alarms=alarms), room) == words


def test_old_figures_are_told() -> None:
    assert gpu_words.in_words(gpu(age=12.0), 30) == "figures are 12.0s old"
    assert gpu_words.in_words(gpu(age=12.0), 10) == "12.0s old"
    assert gpu_words.in_words(gpu(trouble="off the bus", age=3.0), 30) == "off the bus"
    assert gpu_words.in_words(None, 30) == ""


def test_equal_ranks_are_not_slow() -> None:
    assert slow_rank(node({}, {}, {}, {})) is None
    assert slow_rank(node({}, {"step": 99}, {}, {})) is None
    assert slow_rank(node({}, {}, gpus=(gpu(0), gpu(1)))) is None


def test_a_rank_that_is_steps_behind() -> None:
    slow = slow_rank(node({}, {}, {"step": 97}, {}))
    assert slow is not None
    assert (slow.rank, slow.why) == (2, "is 3 steps behind the others")


def test_on_the_cpu_the_rank_that_never_waits_is_slow() -> None:
    slow = slow_rank(node({}, {"cpu": 80.0}, {}, {}))
    assert slow is not None
    assert (slow.rank, slow.why) == (1, "computes 80% of the time, the others 20%")


@pytest.mark.parametrize(("odd", "why"), [
    ({"clock": 1200}, "computes at 1200 MHz, the others at 2000"),
    ({"pcie_width": 8}, "has a PCIe link of 5x8, others 5x16"),
    ({"pcie_gen": 3}, "has a PCIe link of 3x16, others 5x16"),
    ({"pcie_width": 8, "clock": 1200}, "has a PCIe link of 5x8, others 5x16"),
])  # fmt: skip
def test_a_gpu_that_has_less_than_the_others(odd: dict[str, Any], why: str) -> None:
    slow = slow_rank(node({}, {}, {}, gpus=(gpu(0), gpu(1, **odd), gpu(2))))
    assert slow is not None
    assert (slow.rank, slow.why) == (1, why)


@pytest.mark.parametrize("odd", [{"util": 0}, {"trouble": "gone"}, {"age": 9.0}, {"rank": None}])
def test_a_gpu_that_is_idle_silent_or_spare_is_not_compared(odd: dict[str, Any]) -> None:
    assert slow_rank(node({}, {}, {}, gpus=(gpu(0), gpu(1, clock=300, **odd), gpu(2)))) is None


def test_on_gpus_cpu_time_says_nothing() -> None:
    assert slow_rank(node({"cpu": 100.0}, {}, {}, gpus=(gpu(0), gpu(1), gpu(2)))) is None


def test_the_rank_that_comes_last_to_the_meetings_is_slow() -> None:
    slow = slow_rank(node({}, {"late": 0.97}, {"late": 0.03}, {}))
    assert slow is not None
    assert slow.rank == 1
    assert slow.why == "comes last: the others wait for it 97% of the time"
    assert slow_rank(node({}, {"late": 0.3}, {"late": 0.3}, {})) is None
