"""Titles that engines give their processes, in place of the command line.

Free of dependencies, because the keeper reads them.
"""

from __future__ import annotations

import re

from panel.logs.grammars.sglang import global_rank
from panel.logs.grammars.vllm import worker_rank

_TITLE = re.compile(r"(?:sglang::|VLLM::)\S+")
_TAG = re.compile(r"_(DP|PP|TP|EP)(\d+)")
_LONE = ("sglang::scheduler", "VLLM::EngineCore", "VLLM::Worker")
"""What the process of a lone rank may be called: nothing tells it from others."""


def title_of(command: str) -> str | None:
    """Return the title that a process has given itself, None where it shows its command line."""
    match = _TITLE.match(command)
    return match[0] if match else None


def rank_of_title(title: str, world_size: int) -> int | None:
    """Return the rank of a process with this title, None where it is none or does not say yet."""
    if world_size == 1:
        return 0 if title.startswith(_LONE) else None
    if title.startswith("sglang::scheduler"):
        return global_rank({name: int(number) for name, number in _TAG.findall(title)})
    if title.startswith("VLLM::Worker"):
        return worker_rank(title.removeprefix("VLLM::Worker"))
    return None
