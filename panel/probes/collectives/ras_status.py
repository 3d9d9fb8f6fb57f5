"""NCCL's answers → how often each rank has entered each operation. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

Counts = dict[str, dict[int, dict[str, int]]]
"""Communicator → rank → operation → how often."""


class Status(NamedTuple):
    """What the RAS service knows of a gang."""

    counts: Counts
    missing: dict[str, tuple[int, ...]]
    """Ranks that do not answer, by communicator."""
    version: str


class _Rank(msgspec.Struct):
    rank: int
    collective_counts: dict[str, int] = {}


class _MissingRank(msgspec.Struct):
    rank: int


class _Communicator(msgspec.Struct):
    hash: str
    ranks: list[_Rank] = []
    missing_ranks: list[_MissingRank] = []


class _Answer(msgspec.Struct):
    nccl_version: str
    communicators: list[_Communicator]


_GROUP = re.compile(r"^#\d+-\d+ \(([0-9a-f]+)\) ", re.MULTILINE)
_OPERATION = re.compile(r"ranks have different (\w+) operation counts")
_LAUNCHED = re.compile(r"(?:Rank|Ranks) ([\d, -]+?) ha(?:s|ve) launched up to operation (\d+)")
_VERSION = re.compile(r"NCCL version (\S+)")


def parse_json(text: str) -> Status:
    """Return what an answer in JSON says. Raises `ValueError`."""
    try:
        answer = msgspec.json.decode(text, type=_Answer)
    except msgspec.DecodeError as error:
        raise ValueError(f"NCCL's answer is not understood: {error}") from None
    counts: Counts = {}
    missing = {}
    for each in answer.communicators:
        name = each.hash.removeprefix("0x")
        counts[name] = {rank.rank: rank.collective_counts for rank in each.ranks}
        missing[name] = tuple(rank.rank for rank in each.missing_ranks)
    return Status(counts, missing, answer.nccl_version)


def parse_text(text: str) -> Status:
    """Return what an answer in text says, which counts only where ranks differ."""
    counts: Counts = {}
    parts = _GROUP.split(text)
    for name, part in zip(parts[1::2], parts[2::2], strict=True):
        ranks = counts.setdefault(name, {})
        for block in re.split(r"(?=Communicator ranks have different)", part):
            operation = _OPERATION.search(block)
            if operation is None:
                continue
            for who, count in _LAUNCHED.findall(block):
                for rank in _ranks(who):
                    ranks.setdefault(rank, {})[operation[1]] = int(count)
    version = _VERSION.search(text)
    return Status(counts, {}, version[1] if version else "")


def standing_still(before: Status, now: Status) -> Counts:
    """Return the counts of those communicators that did not move between two answers."""
    return {
        name: ranks
        for name, ranks in now.counts.items()
        if before.counts.get(name) == ranks and len(ranks) > 1
    }


def _ranks(text: str) -> list[int]:
    """Return the ranks of `3`, `0-2` or `0,2-4`."""
    found: list[int] = []
    for word in text.replace(" ", "").split(","):
        first, _, last = word.partition("-")
        if first.isdecimal():
            found += range(int(first), int(last or first) + 1)
    return found
