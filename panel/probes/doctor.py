"""What this node can and cannot do: every reading, judged."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from panel.probes import clock, driver, host, pci, place, software, terminal
from panel.probes.check import Check
from panel.probes.gpu import topology
from panel.probes.gpu.library import real


def examine(
    *, folders: Sequence[Path], state: Path, address: tuple[str, int], launch: int | None
) -> tuple[Check, ...]:
    """Look at this node and return what was found.

    `folders` are the panel's own; `state` the one that grows; `address` that of the API in the
    default profile; `launch` the running launch that serves there, None where none does.
    """
    found = driver.read_driver(real())
    gpus = len(found.gpus)
    versions = software.installed((*software.ENGINE, *software.NCCL))
    cuda = software.torch_cuda()
    return (
        software.python(),
        software.engine(versions, cuda, found.cuda),
        software.nccl(versions, cuda, software.torch_nccl()),
        driver.driver(found),
        topology.topology(found.pairs),
        topology.peers(found.pairs),
        pci.iommu(pci.read_iommu(), gpus),
        pci.acs(pci.read_bridges(), gpus),
        host.shm(host.read_shm()),
        host.open_files(host.read_open_files()),
        host.locked_memory(host.read_locked_memory(), gpus),
        host.ptrace(*host.read_ptrace()),
        host.kernel_log(host.read_kernel_log()),
        host.logout(host.read_logout()),
        place.disk(state, place.read_disk(state)),
        place.home(place.read_modes(folders), os.getuid()),
        place.port(*address, "" if launch is not None else place.read_port(*address), launch),
        clock.clock(clock.read_synchronised()),
        terminal.terminal(terminal.read_terminal()),
    )
