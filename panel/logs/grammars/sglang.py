"""SGLang: `[2026-07-12 13:55:29 DP0 TP5 EP5] text`, on the first line of a record only, no level.

Lines without tags are the main process's. NCCL can print the same head: it is asked first.
"""

from __future__ import annotations

import re

from panel.logs.grammars.nccl import nccl
from panel.logs.prefix import Grammar, Prefix
from panel.logs.severity import inferred

_TAGS = r"(?: (?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d+| Disagg[A-Za-z]*\.?[A-Z]*)"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{3})?"
_DATE = r"(?:\d{4}-)?\d\d-\d\d "
_HEAD = re.compile(rf"\[(?P<printed>(?:{_DATE})?{_CLOCK})(?P<tags>{_TAGS}*)\](?: |$)")
_TAG = re.compile(r" (DP|PP|TP|EP)(\d+)")


def _read(line: str) -> Prefix | None:
    if not line.startswith("["):
        return nccl(line)
    match = _HEAD.match(line)
    if match is None:
        return None
    if "NCCL " in line and (found := nccl(line)):
        return found
    tags = {name: int(number) for name, number in _TAG.findall(match["tags"])}
    level = inferred(line[match.end() :])
    return Prefix(match.end(), match["printed"], level, global_rank(tags), None)


def global_rank(tags: dict[str, int]) -> int | None:
    """Return the rank that coordinates mean, None where they do not settle it.

    A tag is printed only where its dimension is larger than 1. TP counts all ranks of a stage, also
    with DP attention; with pipeline stages the size of one would have to be known.
    """
    if "PP" in tags:
        return tags["PP"] if len(tags) == 1 else None
    return next((tags[name] for name in ("TP", "DP", "EP") if name in tags), None)


SGLANG = Grammar("sglang", _read, re.compile(rf"\[(?:{_DATE}{_CLOCK}{_TAGS}*|{_CLOCK}{_TAGS}+)\] "))
