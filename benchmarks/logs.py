"""Search in a 500 MB log of eight ranks: ours, lnav, ripgrep and toolong on the same file.

    python benchmarks/logs.py [--rounds 5] [--file PATH] [--toolong PYTHON]

Every figure is the wall time of a whole command in seconds, Python's start included, as the median
of the rounds; all print the lines they find, and must find equally many. lnav runs headless. What
is not installed is left out; toolong cannot filter and only indexes, by a Python that has it.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from log_sample import LINES, write_sample

from panel.logs.files import open_log
from panel.logs.index import LineIndex
from panel.logs.query import Query
from panel.logs.search import Search, searchable

SCREEN = 50
MOEPANEL = (sys.executable, "-m", "panel.cli", "logs")
TOOLONG = """
import sys, threading
from toolong.log_file import LogFile
log = LogFile(sys.argv[1])
log.open(threading.Event())
print(sum(len(batch) for _, batch in log.scan_line_breaks()))
"""


class Case(NamedTuple):
    """What is looked for, and what it may take."""

    name: str
    pattern: str
    target_s: float
    ignore_case: bool = False


CASES = (
    Case("literal prefix", r"NCCL WARN timeout after \d+", 0.8),
    Case("literal prefix, 1 % of lines", r"Prefill batch.*#new-seq [0-9]", 0.8),
    Case("literal inside", r"tried to allocate [0-9]{3} MiB", 0.8),
    Case("alternation", r"OutOfMemory|NCCL WARN|Traceback", 2.5),
    Case("ignore case", r"nccl warn", 2.5, ignore_case=True),
    Case("no literal", r"[A-Z][a-z]+[A-Z][a-z]+[A-Z][a-z]+", 2.5),
)


def timed(command: Sequence[str], lines: int | None = None) -> tuple[float, int]:
    """Return the time of a command and how many lines it printed, of `lines` at most."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        count = 0
        for _ in process.stdout:
            count += 1
            if count == lines:
                break
        took = time.perf_counter() - began
        process.stdout.close()
    return (took if lines else time.perf_counter() - began), count


def ours(case: Case, log: Path) -> list[str]:
    """The command of ours."""
    return [*MOEPANEL, str(log), "--grep", case.pattern, *(["-i"] if case.ignore_case else [])]


def ripgrep(case: Case, log: Path) -> list[str]:
    """That of ripgrep, which prints plain lines and reads the whole file too."""
    return ["rg", "--no-line-number", *(["-i"] if case.ignore_case else []), case.pattern, str(log)]


def lnav(case: Case, log: Path) -> list[str]:
    """That of lnav, whose patterns regard case when told so."""
    pattern = ("(?i)" if case.ignore_case else "(?-i)") + case.pattern
    return ["lnav", "-n", "-c", f":filter-in {pattern}", str(log)]


def first_hit(case: Case, log: Path) -> float:
    """Return how long a running panel waits for the first hits."""
    began = time.perf_counter()
    query = Query(case.pattern, ignore_case=case.ignore_case)
    with Search([searchable("engine", log)], query) as search:
        next(filter(None, search.hits()))
        return time.perf_counter() - began


def index(log: Path) -> float:
    """Return how long a running panel takes to number all lines."""
    began = time.perf_counter()
    file = open_log(log)
    lines = LineIndex(file).line_at(file.size())
    file.close()
    assert lines == LINES + 1
    return time.perf_counter() - began


def median(rounds: int, measure: Callable[[], float]) -> float:
    """Return the median of some measurements."""
    return statistics.median(measure() for _ in range(rounds))


def compare(log: Path, rounds: int, toolong: str | None) -> None:
    """Measure and print the tables."""
    peers = {"lnav": lnav, "rg": ripgrep}
    there = {name: make for name, make in peers.items() if shutil.which(name)}
    for name in peers.keys() - there.keys():
        print(f"{name} is not installed: left out")
    screen = median(rounds, lambda: timed([*MOEPANEL, str(log)], SCREEN)[0])
    print(f"first screen, whole command      {screen:6.2f} s   target 0.3")
    print(f"number all lines                 {median(rounds, lambda: index(log)):6.2f} s")
    if toolong:
        command = [toolong, "-c", TOOLONG, str(log)]
        print(
            f"  toolong                        {median(rounds, lambda: timed(command)[0]):6.2f} s"
        )
    heads = "".join(f"{name:>8}{'ratio':>7}" for name in there)
    print(f"\n{'filter over all':<30}{'hits':>7}{'first':>7}{'ours':>7}{'target':>8}{heads}")
    for case in CASES:
        mine = ours(case, log)
        hits = timed(mine)[1]
        took = median(rounds, lambda mine=mine: timed(mine)[0])
        first = median(rounds, lambda case=case: first_hit(case, log))
        row = f"{case.name:<30}{hits:>7}{first:>7.2f}{took:>7.2f}{case.target_s:>8}"
        for make in there.values():
            command = make(case, log)
            found = timed(command)[1]
            other = median(rounds, lambda command=command: timed(command)[0])
            differs = "" if found == hits else f" ({found} hits)"
            row += f"{other:>8.2f}{took / other:>7.2f}{differs}"
        print(row)


def main() -> None:
    """Read the arguments, make the file if need be, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--file", type=Path, help="keep the sample here, or use the one made before"
    )
    parser.add_argument("--toolong", metavar="PYTHON", help="a Python that has toolong")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = options.file or Path(folder) / "sample.log"
        if not log.exists():
            write_sample(log)
        log.read_bytes()  # Into the page cache, for all alike.
        size = log.stat().st_size / 1e6
        print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, ", end="")
        print(f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}; ", end="")
        print(f"{size:.0f} MB, {LINES:,} lines, medians of {options.rounds}\n")
        compare(log, options.rounds, options.toolong)


if __name__ == "__main__":
    main()
