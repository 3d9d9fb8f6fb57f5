"""Stacks without the right to trace: a process that offers it writes its own into its log.

`faulthandler` answers to SIGUSR1 even while C code holds the interpreter. To a process that does
not catch the signal it would be the end, so that is looked up first.
"""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from panel.domain.stacks import Frame, ProcessStacks, Thread
from panel.probes.stacks.pyspy import Target

SIGNAL = signal.SIGUSR1
_STEP_S = 0.02
_SETTLED = 3
"""Looks at the log without growth after which the dump counts as whole."""
_THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+).*\(most recent call first\):$")
_FRAME = re.compile(r'^  File "([^"]+)", line (\d+)(?: in (.+))?$')


def catches(pid: int) -> bool:
    """Return whether a process has a handler for the signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = re.search(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)
    return bool(caught and int(caught[1], 16) >> (SIGNAL - 1) & 1)


def dump(target: Target, log: Path, seconds: float) -> ProcessStacks | None:
    """Ask a process for its stacks and read them from its log; None where it does not offer it."""
    if not catches(target.pid):
        return None
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            os.kill(target.pid, SIGNAL)
            data = b""
            quiet, deadline = 0, time.monotonic() + seconds
            while time.monotonic() < deadline and quiet < _SETTLED:
                time.sleep(_STEP_S)
                more = file.read()
                data += more
                quiet = 0 if more or b"most recent call first" not in data else quiet + 1
    except OSError:
        return None
    threads = parse(data.decode(errors="replace"))
    trouble = "" if threads else "it did not write its stacks in time"
    return ProcessStacks(
        source=target.source, pid=target.pid, rank=target.rank, threads=threads, trouble=trouble
    )


def parse(text: str) -> tuple[Thread, ...]:
    """Return the threads of a dump by `faulthandler`, which writes the main thread last."""
    threads: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        if head := _THREAD.match(line):
            threads.append((head[1], []))
        elif threads and (found := _FRAME.match(line)):
            file = "/".join(found[1].split("/")[-2:])
            threads[-1][1].append(Frame(name=found[3] or "?", file=file, line=int(found[2])))
    return tuple(Thread(name=name, frames=tuple(frames)) for name, frames in reversed(threads))
