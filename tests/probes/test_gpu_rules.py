"""What the figures of a GPU mean, and whose GPU it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.domain.gpu import GpuFault, GpuSample
from panel.probes.check import Check
from panel.probes.gpu.alarms import alarms, since
from panel.probes.gpu.ranks import rank_of_gpu, visible
from panel.probes.gpu.topology import Pair, peers, topology
from panel.probes.gpu.xids import XIDS, explain


def gpu(index: int = 0, **figures: object) -> GpuSample:
    return GpuSample(
        index=index,
        uuid=f"GPU-{index:08x}-aaaa",
        bus_id=f"0000:{index + 1:02x}:00.0",
        name="RTX",
        **{"pcie_gen_max": 5, "pcie_width_max": 16, **figures},  # type: ignore[arg-type]
    )


def kinds(sample: GpuSample, **more: object) -> list[str]:
    given_: dict[str, object] = {"replays": 0, "held": {}, "seconds": 600.0, "faults": ()}
    return [alarm.kind for alarm in alarms(sample, **(given_ | more))]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"pcie_width": 16}, []),
        ({"pcie_width": 8}, ["pcie_width"]),
        ({"pcie_gen": 1, "util": 0}, []),
        ({"pcie_gen": 1, "util": 90}, ["pcie_gen"]),
        ({"pcie_gen": 5, "util": 90}, []),
        ({"pcie_gen_max": 4, "pcie_gen_card": 5}, ["pcie_gen"]),
        ({"ecc": 0}, []),
        ({"ecc": 2}, ["ecc"]),
        ({"remap_pending": True}, ["remap"]),
        ({"remap_failed": True, "remap_pending": True}, ["remap"]),
        ({"recovery": "reset the GPU"}, ["recovery"]),
        ({"reasons": ("idle",)}, []),
        ({"reasons": ("heat",)}, ["heat"]),
        ({"nvlinks": 17, "nvlinks_down": 1}, ["nvlink"]),
        ({"nvlinks": 0, "nvlinks_down": 4}, []),
        ({}, []),
    ],
)
def test_alarms(figures: dict[str, object], expected: list[str]) -> None:
    assert kinds(gpu(**figures)) == expected


def test_alarms_that_grow_with_the_launch() -> None:
    assert kinds(gpu(), replays=9) == []
    assert kinds(gpu(), replays=10) == ["replays"]
    assert kinds(gpu(), held={"power": 29.0}) == []
    assert kinds(gpu(), held={"power": 31.0}) == ["power"]
    (alarm,) = alarms(gpu(), replays=0, held={"heat": 60.0}, seconds=600.0, faults=())
    assert alarm.text == "clocks held down by heat for 60 s of 600 s"


def test_faults_come_first_and_say_what_to_do() -> None:
    fault = GpuFault(t_unix=0.0, text="Xid 79", xid=79)
    found = alarms(gpu(pcie_width=8), replays=0, held={}, seconds=1.0, faults=(fault,))
    assert [alarm.severity for alarm in found] == ["failure", "warning"]
    assert "fallen off the bus" in found[0].text
    assert "slot" in found[0].do


@given(
    before=st.dictionaries(st.sampled_from(["power", "heat"]), st.floats(0, 1e6)),
    grown=st.dictionaries(st.sampled_from(["power", "heat"]), st.floats(1, 1e6)),
)
def test_growth_since_launch(before: dict[str, float], grown: dict[str, float]) -> None:
    now = {name: before.get(name, 0.0) + more for name, more in grown.items()}
    assert since(now, before) == {
        name: pytest.approx(more, abs=0.11) for name, more in grown.items()
    }


def test_a_counter_that_was_reset_counts_from_zero() -> None:
    assert since({"power": 3.0}, {"power": 100.0}) == {"power": 3.0}


def test_every_xid_says_what_to_do() -> None:
    for number, xid in XIDS.items():
        assert xid.meaning, number
        assert xid.do, number
    assert "Xid 9999" in explain(9999).meaning


GPUS = [gpu(index) for index in range(8)]


@pytest.mark.parametrize(
    ("listed", "indices"),
    [
        (None, list(range(8))),
        ("0,1", [0, 1]),
        ("7,6,5", [7, 6, 5]),
        (" 3 , 2 ", [3, 2]),
        ("GPU-00000004-aaaa,GPU-00000002", [4, 2]),
        ("0,9,1", [0]),
        ("1,1", [1]),
        ("", []),
        ("-1", []),
        ("nonsense", []),
    ],
)
def test_visible(listed: str | None, indices: list[int]) -> None:
    environ = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    assert [each.index for each in visible(GPUS, environ)] == indices


def test_ranks_follow_the_order_of_the_visible_gpus() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "6,4,2,0"}
    assert rank_of_gpu(GPUS, environ, 4) == {6: 0, 4: 1, 2: 2, 0: 3}
    assert rank_of_gpu(GPUS, environ, 2) == {6: 0, 4: 1}
    assert rank_of_gpu(GPUS, environ, 8) == {}
    assert rank_of_gpu([], {}, 8) == {}


def _grades(pairs: tuple[Pair, ...]) -> list[Check]:
    return [topology(pairs), peers(pairs)]


def test_links_between_gpus() -> None:
    assert [check.grade for check in _grades(())] == ["info", "info"]
    nvlink = (Pair(0, 1, 30, 0, True),)
    assert [check.grade for check in _grades(nvlink)] == ["pass", "pass"]
    assert "NVLink" in topology(nvlink).text
    pcie = (Pair(0, 1, 10, 0, False), Pair(0, 2, 50, 1, False), Pair(1, 2, 50, 1, False))
    links, memory = _grades(pcie)
    assert "0 and 2" in links.text
    assert "between CPU sockets" in links.text
    assert memory.grade == "warn"
    assert "2 of 3 pairs" in memory.text
    assert "NCCL_P2P_DISABLE=1" in memory.mend
