"""Where the host's time goes from the landing of a cycle's tokens to the next verification.

    python benchmarks/host_path.py [--batch 1 4 16] [--drafts 1] [--tokens 256] [--folder FOLDER]

Runs the shape of a folder's config (by default that of DeepSeek-V2-Lite) and a head with random
weights on one GPU, at a simulated acceptance of 0.7. It prints when each part of the leader's loop
begins and ends, in microseconds after it has seen that the tokens are there: medians of the cycles
whose verification was foreseen, which `replay` launches, and how many of all cycles those were.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from speculation import SHAPE, serve

from panel.server.spawner import preload


class Watch:
    """Wraps functions of the leader, and notes when they run in each cycle."""

    def __init__(self) -> None:
        self.landed: float | None = None
        self.cycle: dict[str, tuple[float, float]] = {}
        self.cycles: list[dict[str, tuple[float, float]]] = []

    def on(self, owner: Any, name: str) -> None:
        inner = getattr(owner, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            result = inner(*arguments, **named)
            if self.landed is not None and name not in self.cycle:
                self.cycle[name] = begun - self.landed, time.perf_counter() - self.landed
            return result

        setattr(owner, name, watched)

    def landing(self, owner: Any, name: str) -> None:
        """A cycle begins where this returns True."""
        inner = getattr(owner, name)

        def watched(*arguments: Any) -> Any:
            done = inner(*arguments)
            if done:
                self.cycles.append(self.cycle)
                self.landed, self.cycle = time.perf_counter(), {}
            return done

        setattr(owner, name, watched)

    def report(self) -> dict[str, Any]:
        """Return medians by part, in the order in which they begin."""
        drafted = [cycle for cycle in self.cycles if "draft" in cycle]
        foreseen = [cycle for cycle in drafted if "verify" in cycle and "lay_out" not in cycle]
        spans = defaultdict(list)
        for cycle in foreseen:
            for name, span in cycle.items():
                spans[name].append(span)
        parts = {
            name: [1e6 * median(moments) for moments in zip(*found, strict=True)]
            for name, found in spans.items()
        }
        return {"cycles": len(drafted), "foreseen": len(foreseen), "parts": parts}


def watch(path: Path) -> None:
    """Let rank 0, once it is forked, write there how its cycles went."""
    import torch

    from panel.server import leader
    from panel.server import rank as ranks
    from panel.server.cuda.forward import KernelForward
    from panel.server.cuda.head import KernelHead
    from panel.server.cuda.sampler import KernelSampler, Landing
    from panel.server.drafting import Drafter
    from panel.server.runner import Runner
    from panel.server.scheduler import Scheduler

    watch = Watch()
    watch.landing(Landing, "done")
    for owner, name in (
        (Landing, "land"),
        (Drafter, "reveal"),
        (leader, "chosen"),
        (Scheduler, "commit"),
        (leader._Leader, "_listen"),
        (Scheduler, "next"),
        (Runner, "serves"),
        (Runner, "launch"),
        (KernelHead, "draft"),
        (KernelHead, "verify"),
        (KernelForward, "lay_out"),
        (torch.cuda.CUDAGraph, "replay"),
        (KernelHead, "keep"),
        (KernelSampler, "sample"),
        (KernelHead, "go_on"),
    ):
        watch.on(owner, name)
    rank: Any = ranks
    lead = rank.lead

    def led(*arguments: Any) -> None:
        try:
            lead(*arguments)
        finally:
            path.write_text(json.dumps(watch.report()))

    rank.lead = led


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--drafts", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("flags", nargs="*", metavar="ENGINE FLAGS")
    arguments = parser.parse_args()
    preload()
    with tempfile.TemporaryDirectory() as made:
        found = Path(made, "found")
        watch(found)
        Path(made, "config.json").write_bytes(SHAPE.read_bytes())
        for batch in arguments.batch:
            serve(
                "eagle3",
                [batch],
                arguments.tokens,
                [
                    f"--model-path={arguments.folder or made}",
                    "--load-format=dummy",
                    "--tp-size=1",
                    "--context-length=4096",
                    f"--cuda-graph-bs={batch}",
                    f"--max-running-requests={batch}",
                    "--chunked-prefill-size=2048",
                    "--speculative-simulate-acceptance=0.7",
                    f"--speculative-num-steps={arguments.drafts}",
                    *arguments.flags,
                ],
            )
            report = json.loads(found.read_text())
            print(f"batch {batch}: {report['foreseen']} of {report['cycles']} cycles foreseen")
            for name, (begin, end) in sorted(report["parts"].items(), key=lambda part: part[1]):
                print(f"  {name:9} {begin:7.1f} to {end:7.1f} us", flush=True)


if __name__ == "__main__":
    main()
