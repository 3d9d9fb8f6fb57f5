"""Who wrote a line: rank, process and where its text begins, whatever engine it comes from."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from panel.logs.grammars.builtin import BUILTIN
from panel.logs.grammars.kernel import kernel
from panel.logs.grammars.sglang import SGLANG
from panel.logs.grammars.tensorrt import tensorrt
from panel.logs.grammars.vllm import VLLM
from panel.logs.grammars.wrappers import Wrapper, strip
from panel.logs.prefix import Prefix
from panel.logs.severity import Level

_READERS: tuple[tuple[str, Callable[[str], Prefix | None]], ...] = (
    ("builtin", BUILTIN.read),
    ("sglang", SGLANG.read),
    ("vllm", VLLM.read),
    ("tensorrt", tensorrt),
)
_PROCESS = re.compile(r"\((APIServer|EngineCore|DPCoordinator)\w* pid=")
_LOCATION = re.compile(r"\[?[\w./-]+\.(?:py|cpp|cc|hpp):\d+\]")
_GLUED = re.compile(
    r"(?<=.)\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: (?:DP|PP|TP|EP|ATTN_CP|MOE_DP)\d+)*\] "
)
_KERNEL = re.compile(
    r"NVRM: |\bSXid|oom-kill:|Killed process|oom_reaper|aer_uncor_status"
    r"|Linux version \d|BOOT_IMAGE"
)


class Said(NamedTuple):
    """One line and who said it."""

    text: str
    rank: int | None = None
    pid: int | None = None
    process: str = ""
    """APIServer, EngineCore, main (of SGLang), kernel, nccl (a warning of its); else empty."""
    engine: str = ""
    place: str = ""
    """Where in the source it was logged, as far as printed: lines of one record share it."""
    printed: str = ""
    phase: str | None = None
    bare: bool = True
    """Nothing stands before the text, so that it may belong to the record before it."""
    level: Level = Level.INFO


def pieces(line: str) -> list[str]:
    """Cut a line where another record begins inside it, such as behind a progress bar."""
    starts = [match.start() for match in _GLUED.finditer(line)]
    if not starts:
        return [line]
    return [line[a:b] for a, b in zip([0, *starts], [*starts, len(line)], strict=True)]


def hear(line: str, wrappers: tuple[Wrapper, ...] = ()) -> Said:
    """Return who said a line."""
    outer = strip(line, wrappers)
    text = line[outer.end :]
    if _KERNEL.search(text):
        prefix = kernel(text)
        end, printed = (prefix.end, prefix.printed) if prefix else (0, "")
        return Said(text[end:], process="kernel", printed=printed, bare=False)
    for engine, read in _READERS:
        prefix = read(text)
        if prefix is None or not prefix.end:
            continue
        head = text[: prefix.end]
        return Said(
            text[prefix.end :],
            outer.rank if prefix.rank is None else prefix.rank,
            outer.pid if prefix.pid is None else prefix.pid,
            _process(head, engine, prefix),
            engine if engine != "vllm" or "pid=" in head else "",
            _place(head),
            prefix.printed,
            prefix.phase,
            bare=False,
            level=prefix.level,
        )
    return Said(text, outer.rank, outer.pid)


def _process(head: str, engine: str, prefix: Prefix) -> str:
    if match := _PROCESS.match(head):
        return match[1]
    if "NCCL WARN" in head:
        return "nccl"
    return "main" if engine == "sglang" and prefix.rank is None and prefix.pid is None else ""


def _place(head: str) -> str:
    match = _LOCATION.search(head)
    return match[0] if match else ""
