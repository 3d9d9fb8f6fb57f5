"""What looking costs: NVML a tick, and the pause of a rank whose stack is taken.

    python benchmarks/probes.py [--ticks 30] [--recording FILE]

Without an NVIDIA driver the figures of NVML come from a recording, call by call, and say so.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pynvml

from panel.probes.gpu.fields import WINDOW_S
from panel.probes.gpu.library import real
from panel.probes.gpu.recording import Player, Recording
from panel.probes.gpu.sampler import SLOW_EVERY, Sampler
from panel.probes.stacks.pyspy import program

NODE = 8
RECORDING = Path(__file__).parents[1] / "tests/probes/data/nvml-h200-x2.json"


def live(ticks: int) -> None:
    """Time the sampler on the GPUs of this host."""
    nvml = real()
    sampler = Sampler(nvml)
    gpus = len(sampler.devices)
    fast, slow = [], []
    for tick in range(ticks):
        began = time.perf_counter()
        sampler.tick()
        spent = 1000 * (time.perf_counter() - began - WINDOW_S)
        if tick:
            (slow if tick % SLOW_EVERY == 0 else fast).append(spent)
        time.sleep(0.1)
    for name, spent in (("fast", fast), ("slow", slow)):
        each = statistics.median(spent) / gpus
        print(
            f"NVML {name}: {each:.2f} ms a GPU (median of {len(spent)} ticks, worst"
            f" {max(spent) / gpus:.2f}); {gpus} GPUs {gpus * each:.2f} ms, {NODE} GPUs"
            f" {NODE * each:.1f} ms by extrapolation"
        )


def recorded(path: Path) -> None:
    """Add up what the calls of a tick cost where they were recorded."""
    recording = Recording.load(path)
    player = Player(recording)
    sampler = Sampler(player, lambda _: None)
    gpus = len(sampler.devices)
    costs = []
    for _ in range(SLOW_EVERY + 1):
        player.calls.clear()
        sampler.tick()
        costs.append(sum(_cost(recording, key) for key in player.calls) / gpus / 1000)
    for name, cost in (("fast", costs[1]), ("slow", costs[SLOW_EVERY])):
        print(f"NVML {name}: {cost:.2f} ms a GPU; {NODE} GPUs {NODE * cost:.1f} ms (recorded)")


def _cost(recording: Recording, key: str) -> float:
    entry = recording.calls.get(key)
    return entry.us if entry else 0.0


def pause() -> None:
    """Time py-spy on an idle interpreter of our own."""
    spy = program()
    if spy is None:
        sys.exit("py-spy is not installed")
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as target:
        time.sleep(0.5)
        for words in ((), ("--native",)):
            spent = []
            for _ in range(5):
                began = time.perf_counter()
                command = [spy, "dump", "--json", *words, "--pid", str(target.pid)]
                subprocess.run(command, capture_output=True, check=True)
                spent.append(1000 * (time.perf_counter() - began))
            kind = words[0][2:] if words else "python"
            print(f"py-spy {kind}: {statistics.median(spent):.0f} ms a rank (median of 5)")
        target.kill()


def main() -> None:
    """Measure what can be measured here."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--ticks", type=int, default=33)
    arguments.add_argument("--recording", type=Path, default=RECORDING)
    chosen = arguments.parse_args()
    try:
        real().nvmlInit()
    except pynvml.NVMLError:
        recorded(chosen.recording)
    else:
        live(chosen.ticks)
    pause()


if __name__ == "__main__":
    main()
