"""A log storm in front of the real panel: eight ranks that write as fast as told, the real keeper
and supervisor, the panel in a terminal of 80x24 whose keys are pressed meanwhile.

    python benchmarks/storm.py [--rate 50000] [--seconds 60]

Prints how long the panel takes from a key to its paint, what the supervisor and the panel cost,
what goes to the terminal, and whether every line is in its log and found by a search.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

RANKS = 8
LOGS = " logs  "
"""How the header of the logs screen begins."""
_STEP_S = 0.01
_BETWEEN_S = 0.15
_NOTE = " ".join(f"load[{n}]=0.{n}731" for n in range(5))


def write(rank: int, rate: int, seconds: float) -> None:
    """Write numbered lines to standard output, then wait for the end."""
    began = time.monotonic()
    head = f"[2026-01-31 12:00:00.000 TP{rank} serving] DEBUG storm "
    done = 0
    while (past := time.monotonic() - began) < seconds:
        due = int(past * rate)
        lines = "".join(f"{head}{number:09d} {_NOTE}\n" for number in range(done, due))
        os.write(1, lines.encode())
        done = due
        time.sleep(_STEP_S)
    os.write(1, f"{head}over after {done} lines\n".encode())
    signal.pause()


def supervise(rate: int, seconds: float) -> None:
    """Run the real supervisor with an engine whose ranks write."""
    from panel.config.home import find_home
    from panel.engines.base import Command, ProcessJob
    from panel.engines.builtin import Builtin
    from panel.supervisor.daemon import run_daemon

    class Storm(Builtin):
        spawner = None

        def missing(self) -> str | None:
            return None

        def sources(self, values: Mapping[str, str]) -> dict[str, int | None]:
            return {f"rank-{rank}": rank for rank in range(RANKS)}

        def evidence_flags(self, folder: Path) -> dict[str, str]:
            return {}

        def command(self, values: Mapping[str, str], folder: Path) -> Command:
            me = [sys.executable, __file__, "--rate", str(rate), "--seconds", str(seconds)]
            return Command(
                processes=[
                    ProcessJob(
                        source=source, argv=[*me, "--write", str(rank)], cwd=None,
                        log=str(folder / f"{source}.log"), world_size=RANKS,
                    )
                    for source, rank in self.sources(values).items()
                ]
            )  # fmt: skip

    storm = Storm()
    run_daemon(find_home(), lambda name: storm)


def measure(rate: int, seconds: float) -> None:
    """Run all of it and print the table."""
    import psutil

    from tests.e2e.terminal import Terminal

    with tempfile.TemporaryDirectory() as home, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        env = {"MOEPANEL_HOME": home}
        Path(home, "profiles").mkdir()
        Path(home, "config.toml").write_text("warm = false\n")
        Path(home, "profiles", "tiny.toml").write_text(
            f'engine = "builtin"\n[flags]\nmodel-path = "moe-tiny"\ntp-size = {RANKS}\n'
            f"port = {free.getsockname()[1]}\n"
        )
        free.close()
        me = [sys.executable, __file__, "--rate", str(rate), "--seconds", str(seconds + 5)]
        daemon = subprocess.Popen([*me, "--supervise"], env=os.environ | env)
        terminal = None
        try:
            _wait(lambda: Path(home, "supervisor.sock").exists())
            terminal = Terminal([sys.executable, "-m", "panel.cli"], env)
            terminal.wait_for("press r to launch")
            terminal.press("r")
            terminal.wait_for("storm 0")
            terminal.press("l")
            terminal.wait_for(lambda screen: screen.startswith(LOGS) and " storm " in screen)
            supervisor, panel = psutil.Process(daemon.pid), psutil.Process(terminal.pid)
            before = supervisor.cpu_times(), panel.cpu_times(), terminal.painted
            began = time.monotonic()
            quiet = began + seconds / 3
            terminal.wait_for(lambda _: time.monotonic() > quiet, seconds)
            painted = (terminal.painted - before[2]) / (time.monotonic() - began) / 1024
            taken = _press(terminal, began + seconds)
            past = time.monotonic() - began
            cpu = [_used(old, new.cpu_times()) / past
                   for old, new in zip(before, (supervisor, panel), strict=False)]  # fmt: skip
            written, found = _count(Path(home), rate)
            _report(rate, past, taken, cpu, painted, written, found)
            terminal.press("q")
            terminal.wait()
        finally:
            if terminal is not None:
                terminal.close()
            command = [sys.executable, "-m", "panel.cli", "shutdown", "--now"]
            subprocess.run(command, env=os.environ | env, check=False, stdout=subprocess.DEVNULL)
            daemon.wait(30)


def _press(terminal, until: float) -> dict[str, list[float]]:  # type: ignore[no-untyped-def]
    """Press keys whose effect cannot be missed; return the seconds to each effect, by key."""
    taken: dict[str, list[float]] = {}
    steps = [
        ("up", lambda screen: " new" in screen.splitlines()[0]),
        ("f", lambda screen: "follow" in screen.splitlines()[0]),
        ("=", lambda screen: " ×" in screen),
        ("=", lambda screen: " ×" not in screen),
        ("?", lambda screen: screen.startswith(" help")),
        ("escape", lambda screen: screen.startswith(LOGS)),
    ]
    while time.monotonic() < until:
        for key, effect in steps:
            pressed = time.monotonic()
            terminal.press(key)
            terminal.wait_for(effect)
            taken.setdefault(key, []).append(terminal.painted_at - pressed)
            rest = time.monotonic() + _BETWEEN_S
            terminal.wait_for(lambda _, rest=rest: time.monotonic() > rest)
    return taken


def _count(home: Path, rate: int) -> tuple[int, int]:
    """Return how many lines the ranks say that they wrote, and how many a search finds there.

    Fails where one is missing in a log.
    """
    folder = next((home / "launches").iterdir())
    logs = sorted(folder.glob("rank-*.log"))
    _wait(lambda: all(b"over after" in _tail(log) for log in logs), 60)
    written = 0
    for log in logs:
        said = int(_tail(log).split(b"over after ")[1].split()[0])
        with log.open("rb") as file:
            for number, line in enumerate(file):
                assert number == said or b" storm %09d " % number in line, (log.name, number)
        assert number == said
        written += said
    from panel.logs.query import Query
    from panel.logs.search import Search, searchable

    with Search([searchable(log.stem, log) for log in logs], Query(r"storm \d+ load")) as search:
        found = sum(len(piece) for log in range(len(logs)) for piece in search.hits(log))
    return written, found


def _report(
    rate: int, past: float, taken: dict[str, list[float]], cpu: list[float], painted: float,
    written: int, found: int,
) -> None:  # fmt: skip
    # Textual waits 100 ms for the rest of a sequence before it takes Escape for a key.
    escapes = taken.pop("escape")
    seconds = [each for key in taken.values() for each in key]
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; ", end="")
    print(f"{RANKS} x {rate:,} lines/s for {past:.0f} s, 80x24")
    print(f"{'':28}{'measured':>12}{'target':>10}")
    print(f"{'key to paint, median':28}{_cut(seconds, 50):>9.0f} ms")
    print(f"{'key to paint, p95':28}{_cut(seconds, 95):>9.0f} ms{50:>7} ms", end="")
    print(f"    of {len(seconds)} keys")
    for key, each in taken.items():
        print(f"{f'  {key}, median and p95':28}{_cut(each, 50):>9.0f} ms{_cut(each, 95):>7.0f} ms")
    print(f"{'Escape, which waits 100 ms':28}{_cut(escapes, 50):>9.0f} ms")
    print(f"{'supervisor':28}{cpu[0]:>6.2f} cores{1:>5} cores")
    print(f"{'panel':28}{cpu[1]:>6.2f} cores")
    print(f"{'to the terminal, following':28}{painted:>6.0f} KiB/s{60:>4} KiB/s")
    print(f"{'lines written / found':28}{written:>12,}{found:>12,}")


def _cut(seconds: list[float], percent: int) -> float:
    """Return a percentile in milliseconds."""
    return statistics.quantiles(seconds, n=100, method="inclusive")[percent - 1] * 1000


def _used(before, after) -> float:  # type: ignore[no-untyped-def]
    return after.user + after.system - before.user - before.system


def _tail(log: Path) -> bytes:
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - 200, 0))
        return file.read()


def _wait(true, seconds: float = 30.0) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def main() -> None:
    """Read the arguments, and be the benchmark, its supervisor or one of its ranks."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else "")
    parser.add_argument("--rate", type=int, default=50_000, help="lines a second of each rank")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--supervise", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--write", type=int, metavar="RANK", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write is not None:
        write(options.write, options.rate, options.seconds)
    elif options.supervise:
        supervise(options.rate, options.seconds)
    else:
        measure(options.rate, options.seconds)


if __name__ == "__main__":
    main()
