"""Which GPUs reach each other without the host, and over what."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import pynvml

from panel.probes.check import Check
from panel.probes.gpu.library import Nvml

_READ, _WRITE, _NVLINK = 0, 1, 2
_WAYS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "one board",
    pynvml.NVML_TOPOLOGY_SINGLE: "one PCIe switch",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "several PCIe switches",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "the host bridge",
    pynvml.NVML_TOPOLOGY_NODE: "one CPU socket",
    pynvml.NVML_TOPOLOGY_SYSTEM: "the link between CPU sockets",
}
_NO_P2P = {
    pynvml.NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED: "the chipset does not allow it",
    pynvml.NVML_P2P_STATUS_GPU_NOT_SUPPORTED: "the GPUs cannot",
    pynvml.NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED: "the PCIe topology does not allow it",
    pynvml.NVML_P2P_STATUS_DISABLED_BY_REGKEY: "the driver has it switched off",
    pynvml.NVML_P2P_STATUS_NOT_SUPPORTED: "the driver does not offer it",
}


class Pair(NamedTuple):
    """Two GPUs."""

    one: int
    other: int
    way: int
    """NVML's topology level; higher is farther."""
    peer: int
    """NVML's P2P status for reads and writes, 0 is yes."""
    nvlink: bool


def read_pairs(nvml: Nvml) -> tuple[Pair, ...]:
    """Return every pair of GPUs. Raises `NVMLError`."""
    gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    pairs = []
    for (one, first), (other, second) in combinations(enumerate(gpus), 2):
        reads, writes, links = (
            nvml.nvmlDeviceGetP2PStatus(first, second, index) for index in (_READ, _WRITE, _NVLINK)
        )
        way = nvml.nvmlDeviceGetTopologyCommonAncestor(first, second)
        pairs.append(Pair(one, other, way, reads or writes, links == pynvml.NVML_P2P_STATUS_OK))
    return tuple(pairs)


def topology(pairs: tuple[Pair, ...]) -> Check:
    """Judge what lies between the GPUs."""
    if not pairs:
        return Check(name="gpu links", grade="info", text="fewer than two GPUs")
    if all(pair.nvlink for pair in pairs):
        return Check(name="gpu links", grade="pass", text="NVLink between all GPUs")
    farthest = max(pairs, key=lambda pair: pair.way)
    way = _WAYS.get(farthest.way, f"level {farthest.way}")
    text = f"PCIe; the farthest pair, {farthest.one} and {farthest.other}, meets at {way}"
    if any(pair.nvlink for pair in pairs):
        text += "; some pairs have NVLink"
    return Check(name="gpu links", grade="pass", text=text)


def peers(pairs: tuple[Pair, ...]) -> Check:
    """Judge whether GPUs read and write each other's memory."""
    refused = [pair for pair in pairs if pair.peer]
    if not pairs:
        return Check(name="p2p", grade="info", text="fewer than two GPUs")
    if not refused:
        return Check(name="p2p", grade="pass", text="all GPUs reach each other's memory")
    first = refused[0]
    why = _NO_P2P.get(first.peer, f"status {first.peer}")
    return Check(
        name="p2p",
        grade="warn",
        text=f"{len(refused)} of {len(pairs)} pairs have none, such as {first.one} and"
        f" {first.other}: {why}. All-reduces go through host memory, custom all-reduce fails",
        mend="launch with --disable-custom-all-reduce and NCCL_P2P_DISABLE=1",
    )
