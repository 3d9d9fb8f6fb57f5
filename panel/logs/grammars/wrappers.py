"""What launchers and collectors put before the lines of what they run."""

from __future__ import annotations

import re
from typing import NamedTuple


class Wrapper(NamedTuple):
    """One kind; its pattern may know the rank or the pid."""

    name: str
    pattern: re.Pattern[str]


WRAPPERS = (
    Wrapper("compose", re.compile(r"[\w.-]+-\d+ +\| ?")),
    Wrapper(
        "k8s",
        re.compile(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?"
        ),
    ),
    Wrapper("mpirun", re.compile(r"\[\d+,(?P<rank>\d+)\]<(?:stdout|stderr|stddiag)>: ?")),
    Wrapper("srun", re.compile(r" *(?P<rank>\d+): ")),
    Wrapper(
        "ray",
        # vLLM's own process names look alike: they are its grammar's.
        re.compile(
            r"\((?!APIServer|EngineCore|DPCoordinator|Worker|VllmWorker)\w+ pid=(?P<pid>\d+)"
            r"(?:, ip=[^)]*)?\) ?"
        ),
    ),
    Wrapper("torchrun", re.compile(r"\[(?!rank)[a-z_]+(?P<rank>\d+)\]: ?")),
)
BY_NAME = {wrapper.name: wrapper for wrapper in WRAPPERS}


class Stripped(NamedTuple):
    """What wrappers said of a line."""

    end: int
    """Where the wrapped line begins."""
    rank: int | None
    pid: int | None


def strip(line: str, wrappers: tuple[Wrapper, ...]) -> Stripped:
    """Read these wrappers from the left, each where it is; the innermost rank and pid count."""
    end, rank, pid = 0, None, None
    for wrapper in wrappers:
        match = wrapper.pattern.match(line, end)
        if match:
            end, found = match.end(), match.groupdict()
            rank = int(found["rank"]) if found.get("rank") else rank
            pid = int(found["pid"]) if found.get("pid") else pid
    return Stripped(end, rank, pid)
