"""vLLM: `(Worker_TP1_EP1 pid=530) INFO 07-12 13:55:29 [file.py:12] text`, on every line.

What does not go through its logger, such as tracebacks, has the process alone in front.
"""

from __future__ import annotations

import re

from panel.logs.grammars.native import native
from panel.logs.prefix import Grammar, Prefix
from panel.logs.severity import NAMES, inferred

_NAME = (
    r"(?:APIServer|EngineCore|DPCoordinator|Worker|VllmWorkerProcess|VllmWorker|RayWorkerWrapper"
    r"|RayWorkerProc)"
)
_PROCESS = re.compile(
    rf"\({_NAME}(?P<tags>(?:_(?:DP|PP|PCP|TP|DCP|EP)?\d+)*)(?: rank=(?P<rank>\d+))?"
    r" pid=(?P<pid>\d+)(?:, ip=[^)]*)?\)(?: |$)"
)
_LOG = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<printed>\d\d-\d\d \d\d:\d\d:\d\d) "
    r"\[?[\w./-]+\.py:\d+\](?: |$)"
)
_TAG = re.compile(r"_(DP|PP|TP|EP)(\d+)")


def _read(line: str) -> Prefix | None:
    end, rank, pid = 0, None, None
    # One build prints the process twice, first by its short name.
    while match := _PROCESS.match(line, end):
        end, pid = match.end(), int(match["pid"])
        rank = int(match["rank"]) if match["rank"] else worker_rank(match["tags"])
    log = _LOG.match(line, end)
    if log:
        return Prefix(log.end(), log["printed"], NAMES[log["level"]], rank, None, pid)
    if pid is None:
        return native(line)
    inner = native(line[end:])
    if inner is None:
        return Prefix(end, "", inferred(line[end:]), rank, None, pid, logged=False)
    return inner._replace(
        end=end + inner.end, rank=rank if inner.rank is None else inner.rank, pid=pid
    )


def worker_rank(tags: str) -> int | None:
    """Return the global rank of a worker's name, None where it does not settle it.

    EP counts over data and tensor parallel ranks, TP within one replica only.
    """
    found = {name: int(number) for name, number in _TAG.findall(tags)}
    if "PP" in found:
        return found["PP"] if len(found) == 1 else None
    if "EP" in found:
        return found["EP"]
    return next(iter(found.values())) if len(found) == 1 else None


VLLM = Grammar(
    "vllm",
    _read,
    head=re.compile(rf"(?<!\) )\({_NAME}[_A-Z0-9]*(?: rank=\d+)? pid=\d+"),
    loud=re.compile(rb"\n(?!\([A-Za-z0-9_]* pid=\d+\) (?:DEBUG|INFO) \d\d-\d\d )"),
)
