"""What the probes say of scripted nodes: GPUs, figures over time, stacks, a suspected hang.

The GPUs are those of the recorded session of two H200, dealt out to eight ranks.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from panel.domain.gpu import Gpu, GpuFault, GpuSample
from panel.domain.hang import HangView, Suspicion
from panel.domain.series import Series
from panel.domain.snapshot import Snapshot
from panel.domain.stacks import Frame, ProcessStacks, Stacks, Thread
from panel.probes.gpu.alarms import alarms
from panel.probes.gpu.recording import Player, Recording
from panel.probes.gpu.sampler import Sampler
from panel.probes.hang.ladder import Means, Outcome, plan
from panel.probes.stacks.grouping import group
from tests.screens.stage import Node, hung, serving

_SESSION = Path(__file__).parents[1] / "probes/data/nvml-h200-x2.json"
_BUSY_LOOK = 13
"""Of the recording: both GPUs compute."""
_SECONDS = 700


@cache
def recorded() -> tuple[tuple[GpuSample, ...], ...]:
    """Return the samples of every look of the session."""
    player = Player(Recording.load(_SESSION))

    def window(seconds: float) -> None:
        player.tick += 1

    sampler, looks = Sampler(player, window), []
    for _ in range(player.recording.ticks // 2):
        looks.append(sampler.tick().samples)
        player.tick += 1
    return tuple(looks)


def gpus(changed: dict[int, dict[str, Any]] | None = None) -> tuple[Gpu, ...]:
    """Return eight GPUs under load; `changed`: by index, other fields of a sample or of a GPU."""
    return tuple(_gpu(index, (changed or {}).get(index, {})) for index in range(8))


def _gpu(index: int, changed: dict[str, Any]) -> Gpu:
    usual = recorded()[_BUSY_LOOK][index % 2]
    of_gpu = {name: value for name, value in changed.items() if name in Gpu.__struct_fields__}
    of_sample = {name: value for name, value in changed.items() if name not in of_gpu}
    sample = msgspec.structs.replace(
        usual,
        **{
            "index": index,
            "uuid": f"GPU-{index}",
            "bus_id": f"0000:{index + 1:02x}:00.0",
            "memory_used": 131 << 30,
            "pcie_rx": 1.2e9 + index * 1e7,
            "pcie_tx": 0.8e9,
            "reasons": (),
            **of_sample,
        },
    )
    replays = of_gpu.setdefault("replays", 0)
    held, faults = of_gpu.setdefault("held", {}), of_gpu.setdefault("faults", ())
    found = alarms(sample, replays=replays, held=held, seconds=751.0, faults=faults)
    return Gpu(sample=sample, **({"rank": index, "alarms": found} | of_gpu))


def on_gpus(changed: dict[int, dict[str, Any]] | None = None, **more: Any) -> Snapshot:
    """Return a node that serves on eight GPUs."""
    of = serving(**more)
    host = msgspec.structs.replace(of.host, gpu_note="")
    return msgspec.structs.replace(of, host=host, gpus=gpus(changed))


SICK: dict[int, dict[str, Any]] = {
    1: {"held": {"power": 120.0}, "reasons": ("power",)},
    2: {"held": {"power": 118.0}, "reasons": ("power",)},
    3: {"pcie_width": 8, "power": 300.0, "util": 64, "pcie_rx": 6e8, "pcie_tx": 4e8},
    4: {"replays": 212},
    5: {"held": {"heat": 88.0}, "reasons": ("heat",), "clock": 1200, "temperature": 91},
    6: {
        "trouble": "the GPU has fallen off the bus",
        "faults": (GpuFault(t_unix=1_796_000_700.0, text="Xid 79", xid=79),),
    },
    7: {"age": 12.0},
}
"""Every kind of trouble, a GPU each."""


def figures() -> Series:
    """Return twelve minutes of figures, with a wave in most of them."""
    times = tuple(float(t) for t in range(751 - _SECONDS, 751))
    wave = tuple(abs((t % 120) / 60 - 1) for t in times)
    values: dict[str, tuple[float | None, ...]] = {
        "engine.tok_s": tuple(round(200 + 231 * height, 1) for height in wave),
        "engine.running": tuple(float(round(4 * height)) for height in wave),
        "engine.waiting": tuple(2.0 if height > 0.9 else 0.0 for height in wave),
        "engine.kv": tuple(0.1 + 0.3 * height for height in wave),
        "engine.acceptance": tuple(None if t < 200 else 2.6 + 0.2 * height
                                   for t, height in zip(times, wave, strict=True)),
    }  # fmt: skip
    for name, middle in (("ttft_ms", 91.0), ("itl_ms", 2.3)):
        for share, factor in ((50, 1.0), (95, 1.6), (99, 2.7)):
            values[f"engine.{name}_p{share}"] = tuple(
                round(middle * (1 + height / 2) * factor, 1) for height in wave
            )
    for index in range(8):
        values[f"gpu{index}.util"] = tuple(100.0 - 40 * height for height in wave)
        values[f"gpu{index}.pcie_rx"] = tuple(1.2e9 * height for height in wave)
        values[f"gpu{index}.pcie_tx"] = tuple(0.8e9 * height for height in wave)
    return Series(times=times, values=values)


def charted(of: Snapshot) -> Node:
    """Return a node with these figures over time."""
    node = Node(of)
    node.figures = figures()
    return node


def stacks() -> Stacks:
    """Return stacks of eight ranks of which one was stopped and seven wait for it."""
    outer = [Frame(name=f"layer_{n}", file="engine/model.py", line=40 + n) for n in range(9)]
    wait = (Frame(name="wait", file="engine/roster.py", line=88), *outer)
    beat = Frame(name="beat", file="engine/life.py", line=9)
    compute = (Frame(name="experts", file="engine/experts.py", line=61), *outer[1:])
    processes = [
        ProcessStacks(
            source=f"rank-{rank}", pid=41200 + rank, rank=rank, state="T" if rank == 5 else "S",
            threads=(
                Thread(name="MainThread", frames=compute if rank == 5 else wait, active=True),
                Thread(name="heartbeat", frames=(beat,)),
            ),
        )
        for rank in range(8)
    ]  # fmt: skip
    denied = "py-spy: permission denied; sysctl kernel.yama.ptrace_scope=0"
    front = ProcessStacks(source="frontend", pid=41209, trouble=denied)
    return Stacks(
        t=752.1, reason="asked", native=False, groups=group((*processes, front)), seconds=0.4,
        processes=(*processes, front), file="stacks/000752.100-asked.json",
    )  # fmt: skip


SUSPICION = Suspicion(
    since=727.0, ranks=tuple(range(8)), text="8 of 8 ranks without a beat for 24 s in serving"
)


def suspected() -> Snapshot:
    """Return a node that is suspected of hanging."""
    of = hung()
    assert of.launch is not None
    launch = msgspec.structs.replace(of.launch, suspicion=SUSPICION)
    return msgspec.structs.replace(of, launch=launch)


def hanging() -> Node:
    """Return that node with a ladder of which two steps were done."""
    node = Node(suspected())
    node.stacked = stacks()
    node.ladder = HangView(
        launch=17,
        suspicion=SUSPICION,
        rungs=plan(
            Means(
                ras="the ranks use no GPU, so no NCCL",
                core="the ranks use no GPU, so no CUDA kernels",
            ),
            {
                "look": Outcome(
                    "8 of 8 ranks without a beat for 24 s in serving; rank 5 never entered meeting "
                    "4711; rank 5 left meeting 4710",
                    "hang/000740.100-look.json",
                ),
                "stacks": Outcome(
                    "rank 5 apart from the others: stopped by a signal in experts "
                    "(engine/experts.py:61)",
                    "stacks/000741.300-hang.json",
                ),
            },
        ),
    )
    return node
