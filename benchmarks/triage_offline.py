"""Time of `moepanel triage FILE --json` on large logs that end in a crash.

    python benchmarks/triage_offline.py [--mib 200] [--rounds 3]

`healthy`: lines of a serving engine, as such logs mostly are. `ids`: every line has another random
identifier, so that none repeats. `flood`: a third of the lines is a victim's complaint.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

BOOT = (
    "[2026-03-04 10:00:00] server_args=ServerArgs(model_path='/m', tp_size=8, ep_size=8)",
    *(
        f"[2026-03-04 10:00:0{rank} TP{rank}] Load weight begin. avail mem=90 GB"
        for rank in range(8)
    ),
    "[2026-03-04 10:01:00] The server is fired up and ready to roll!",
)
CRASH = (
    "[2026-03-04 11:00:00 TP5] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/srv/sglang/srt/layers/moe/ep_moe/layer.py", line 12, in forward',
    "    out = grouped_gemm(x)",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB.",
    "",
    "[2026-03-04 11:00:00] SIGQUIT received. It usually means one child failed.",
)


def decode(index: int) -> str:
    """Return a line of a serving rank."""
    return (
        f"[2026-03-04 10:{index // 60 % 60:02}:{index % 60:02} TP0] Decode batch, #running-req: "
        f"{index % 64}, #token: {index * 7}, token usage: 0.{index % 90:02}, throughput: 512.1\n"
    )


def access(index: int) -> str:
    """Return a line with an identifier of its own."""
    number = random.getrandbits(64)
    return f"[2026-03-04 10:10:10] Request chatcmpl-{number:016x} finished, port {index}\n"


def complaint(index: int) -> str:
    """Return a line of a rank that waits in vain."""
    return (
        f"[rank{index % 8}]:[E304 10:10:10.1 ProcessGroupNCCL.cpp:632] [PG ID 1 PG GUID 1 Rank 1] "
        "Some NCCL operations have failed or timed out.\n"
    )


KINDS: dict[str, tuple[Callable[[int], str], ...]] = {
    "healthy": (decode,),
    "ids": (decode, access),
    "flood": (decode, decode, complaint),
}


def write(path: Path, kind: str, mib: int) -> int:
    """Write a log; return its lines."""
    random.seed(7)
    makers = KINDS[kind]
    lines = 0
    with path.open("w") as file:
        file.writelines(f"{line}\n" for line in BOOT)
        while file.tell() < mib << 20:
            file.writelines(makers[each % len(makers)](each) for each in range(lines, lines + 9999))
            lines += 9999
        file.writelines(f"{line}\n" for line in CRASH)
    return lines


def main() -> None:
    """Print a row a kind."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mib", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{'log':<8} {'MiB':>5} {'lines':>9} {'seconds':>8}  verdict")
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            path = Path(folder, f"{kind}.log")
            lines = write(path, kind, options.mib)
            seconds, told = [], {}
            for _ in range(options.rounds):
                began = time.perf_counter()
                done = subprocess.run(
                    [sys.executable, "-m", "panel.cli", "triage", str(path), "--json"],
                    capture_output=True, check=True,
                )  # fmt: skip
                seconds.append(time.perf_counter() - began)
                told = json.loads(done.stdout)
            middle = statistics.median(seconds)
            print(
                f"{kind:<8} {options.mib:>5} {lines:>9} {middle:>8.2f}"
                f"  {told['kind']} {told['root_ranks']}"
            )
            path.unlink()


if __name__ == "__main__":
    main()
