"""Marks: places in a log that mean something for the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from panel.triage.signature import Catalog, Place, Rule, Signature
from panel.triage.trace import Link, LogLine

FRAMES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (phase, re.compile("|".join(names)))
    for phase, names in (
        ("draft", ("eagle_worker", "draft_worker", "load_drafter", "spec_decode/eagle")),
        ("capture", ("cuda_graph_runner", "capture_model", "capture_one", "graph_capture")),
        ("weights", ("load_weights", "weight_loader", r"load_model\b", "model_loader")),
        ("kv_cache", ("init_memory_pool", "profile_run", "initialize_kv", "kv_cache_utils")),
    )
)
"""Functions and files that only run in one phase, the most telling first."""


class Mark(NamedTuple):
    """One place."""

    source: str
    order: tuple[float, int]
    """Arrival time and offset: what came before what."""
    rank: int | None
    pid: int | None
    process: str
    engine: str
    phase: str | None
    signature: Signature | None
    """None: an exception that no signature knows."""
    groups: Mapping[str, str]
    lines: tuple[LogLine, ...]
    """The deciding one first."""
    link: Link | None = None
    """The exception, where it is one."""
    grave: bool = True
    """Printed as an error, or by something that prints no level."""

    @property
    def t(self) -> float:
        """Seconds since launch at which it arrived."""
        return self.order[0]

    @property
    def kind(self) -> str:
        """The kind of its signature."""
        return self.signature.kind if self.signature else "unknown_exception"

    @property
    def text(self) -> str:
        """The message, in one line."""
        if self.link is not None:
            return self.link.short
        return self.lines[0].text.strip()


class Found(NamedTuple):
    """A signature and what its pattern caught."""

    signature: Signature
    groups: Mapping[str, str]


def classify(
    catalog: Catalog, text: str, record: str, engine: str, phase: str | None, place: Place
) -> Found | None:
    """Return the signature of `text` that asks for most; `record` is all there is around it."""
    for rule in catalog.rules:
        signature = rule.signature
        if signature.place not in ("any", place) or not _suits(rule, engine, phase):
            continue
        match = next((found for each in rule.match if (found := each.search(text))), None)
        if match is None or (rule.unless and rule.unless.search(record)):
            continue
        if all(pattern.search(record) for pattern in rule.also):
            groups = {name: value for name, value in match.groupdict().items() if value}
            return Found(signature, groups)
    return None


def classify_chain(
    catalog: Catalog, chain: Iterable[Link], engine: str, phase: str | None
) -> tuple[Found | None, Link]:
    """Return what a chain of exceptions means: its first link decides unless only a later one is
    known."""
    links = tuple(chain)
    record = "\n".join(line.text for link in links for line in link.lines)
    for link in links:
        found = classify(catalog, link.said, record, engine, phase, "trace")
        if found is not None:
            return found, link
    return None, links[0]


def phase_of_frames(chain: Iterable[Link]) -> str | None:
    """Return the phase that the frames of a chain betray."""
    record = "\n".join(line.text for link in chain for line in link.lines[: link.raised])
    return next((phase for phase, pattern in FRAMES if pattern.search(record)), None)


def _suits(rule: Rule, engine: str, phase: str | None) -> bool:
    signature = rule.signature
    if signature.engines and engine and engine not in signature.engines:
        return False
    return not signature.phases or phase in signature.phases
