"""A core of the CUDA kernels of one rank, on demand, and what cuda-gdb reads in it.

CUDA makes a pipe for each process whose environment asks for it; whatever is written into the pipe
freezes the GPU's work and writes a file of gigabytes. Names are those of CUDA's own documentation.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

SWITCH = "CUDA_ENABLE_USER_TRIGGERED_COREDUMP"
_PIPE = ("CUDA_COREDUMP_PIPE", "corepipe.cuda.%h.%p")
_FILE = ("CUDA_COREDUMP_FILE", "core_%t_%h_%p.nvcudmp")
"""Variable, and its value where it is not set; %h host, %p process, %t time."""
_KERNEL = re.compile(r"\(\d+,\d+,\d+\) +\(\d+,\d+,\d+\) +(?P<name>\S.*)$", re.MULTILINE)
"""Grid, block, invocation: the end of a line of `info cuda kernels`."""
_GDB_S = 60.0
_POLL_S = 0.25
_QUIET_S = 2.0


def trouble(env: Mapping[str, str], pids: Mapping[int, int]) -> str:
    """Return why no core can be taken of the ranks with these pids, empty where one can."""
    if env.get(SWITCH) != "1":
        return f"the launch had no {SWITCH}=1 in its profile's env"
    if not any(pipe_of(env, pid).exists() for pid in pids.values()):
        return f"CUDA has made no pipe {pipe_of(env, next(iter(pids.values()), 0)).name}"
    return ""


def pipe_of(env: Mapping[str, str], pid: int) -> Path:
    """Return the pipe that CUDA makes for a process."""
    return _place(env, _PIPE, pid, "")


def cores_of(env: Mapping[str, str], pid: int) -> list[Path]:
    """Return the cores of a process, oldest first."""
    pattern = _place(env, _FILE, pid, "*")
    found = pattern.parent.glob(pattern.name)
    return sorted(found, key=lambda path: path.stat().st_mtime)


def take(env: Mapping[str, str], pid: int, seconds: float) -> tuple[Path | None, bool]:
    """Ask for a core; return its file, if any, and whether it is whole. Raises OSError."""
    before = set(cores_of(env, pid))
    # Without a reader the open fails at once and does not block.
    pipe = os.open(pipe_of(env, pid), os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.closing(os.fdopen(pipe, "wb", buffering=0)) as file:
        file.write(b"moepanel\n")
    deadline = time.monotonic() + seconds
    size, grew, core = -1, time.monotonic(), None
    while time.monotonic() < deadline:
        core = next((each for each in cores_of(env, pid) if each not in before), None)
        now = core.stat().st_size if core else -1
        if now != size:
            size, grew = now, time.monotonic()
        elif core is not None and time.monotonic() - grew >= _QUIET_S:
            return core, True
        time.sleep(_POLL_S)
    return core, False


def kernels(core: Path) -> str:
    """Return the kernels that stood on the GPU by name, or why they are not known."""
    program = shutil.which("cuda-gdb")
    if program is None:
        return f"no cuda-gdb here to read it: cuda-gdb --batch -ex 'target cudacore {core.name}'"
    command = [program, "--batch", "-ex", f"target cudacore {core}", "-ex", "info cuda kernels"]
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, timeout=_GDB_S, check=False,
            stdin=subprocess.DEVNULL,
        ).stdout  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cuda-gdb cannot read it: {error}"
    names = dict.fromkeys(match["name"].strip() for match in _KERNEL.finditer(said))
    return "; ".join(names) or "cuda-gdb finds no kernel on the GPU"


def _place(env: Mapping[str, str], name: tuple[str, str], pid: int, t: str) -> Path:
    text = env.get(name[0], name[1])
    for sign, value in (("%h", platform.node()), ("%p", str(pid)), ("%t", t)):
        text = text.replace(sign, value)
    # A name without a folder is in the working folder of the process.
    path = Path(text)
    return path if path.is_absolute() else Path(os.path.realpath(f"/proc/{pid}/cwd")) / path
