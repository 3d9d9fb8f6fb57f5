"""py-spy on all processes at once, each within the same deadline."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from panel.domain.stacks import Frame, ProcessStacks, Thread
from panel.probes.stacks import right
from panel.probes.stacks.grouping import STOPPED

_LEAST_S = 0.1
"""One that is done has this long to be read, though another one took all the time."""


class Target(NamedTuple):
    """A process to look at."""

    source: str
    pid: int
    rank: int | None


class _Frame(msgspec.Struct):
    name: str
    filename: str
    short_filename: str | None
    line: int


class _Thread(msgspec.Struct):
    thread_name: str | None
    os_thread_id: int | None
    active: bool
    owns_gil: bool
    frames: list[_Frame]


def program() -> str | None:
    """Return the py-spy of this environment, or the one on the path."""
    own = Path(sys.executable).parent / "py-spy"
    return str(own) if own.exists() else shutil.which("py-spy")


def dump(targets: Sequence[Target], *, native: bool, seconds: float) -> tuple[ProcessStacks, ...]:
    """Return the stacks of all targets after at most `seconds`; what failed says why.

    Each process is paused for some 20 ms, with native frames for about 100.
    """
    spy = program()
    if spy is None:
        return tuple(
            _failed(each, "py-spy is not installed; pip install py-spy") for each in targets
        )
    deadline = time.monotonic() + seconds
    running = [(target, _start(spy, target, native)) for target in targets]
    return tuple(_finish(target, process, deadline) for target, process in running)


def parse(target: Target, text: bytes) -> ProcessStacks:
    """Return the stacks that py-spy printed as JSON; the main thread comes first."""
    threads = msgspec.json.decode(text, type=list[_Thread])
    threads.sort(key=lambda each: each.os_thread_id != target.pid)
    return ProcessStacks(
        source=target.source,
        pid=target.pid,
        rank=target.rank,
        state=_state(target.pid),
        threads=tuple(
            Thread(
                name=each.thread_name or f"thread {each.os_thread_id}",
                active=each.active,
                gil=each.owns_gil,
                frames=tuple(_frames(each.frames)),
            )
            for each in threads
        ),
    )


def _start(spy: str, target: Target, native: bool) -> subprocess.Popen[bytes] | str:
    trouble = right.trouble(target.pid)
    if trouble:
        return trouble
    command = [spy, "dump", "--json", "--pid", str(target.pid)]
    if native:
        command.append("--native")
    if _state(target.pid) in STOPPED:
        # One that is stopped already never reports to the tracer that it stopped.
        command.append("--nonblocking")
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def _finish(
    target: Target, process: subprocess.Popen[bytes] | str, deadline: float
) -> ProcessStacks:
    if isinstance(process, str):
        return _failed(target, process)
    with process:
        try:
            output, errors = process.communicate(timeout=max(_LEAST_S, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            return _failed(target, "py-spy did not answer in time")
    if process.returncode:
        return _failed(target, f"py-spy: {_first_line(errors)}")
    try:
        return parse(target, output)
    except msgspec.DecodeError as error:
        return _failed(target, f"py-spy's answer is not understood: {error}")


def _failed(target: Target, trouble: str) -> ProcessStacks:
    return ProcessStacks(
        source=target.source,
        pid=target.pid,
        rank=target.rank,
        state=_state(target.pid),
        trouble=trouble,
    )


def _frames(frames: Iterable[_Frame]) -> Iterable[Frame]:
    for each in frames:
        yield Frame(name=each.name, file=each.short_filename or each.filename, line=each.line)


def _state(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return text[text.rindex(")") + 2]


def _first_line(errors: bytes) -> str:
    lines = errors.decode(errors="replace").strip().splitlines()
    return lines[0].removeprefix("Error: ") if lines else "it failed without a word"
