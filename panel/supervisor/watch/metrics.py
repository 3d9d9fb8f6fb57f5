"""Prometheus text → the figures of the engine. Pure."""

from __future__ import annotations

import heapq
import math
import re
from collections import deque
from typing import NamedTuple

import msgspec

from panel.domain.snapshot import Metrics, Speculation
from panel.engines.base import MetricNames
from panel.supervisor.watch.speculation import Fall, speculation

HISTORY_S = 60
PERCENTILES = (50, 95, 99)
BUSIEST_S = 10
"""The ledger keeps the mean of this many seconds."""
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", re.MULTILINE)
_LE = re.compile(r'le="([^"]+)"')
_PART = re.compile(r'(?:part|position)="([^"]+)"')
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Scrape(NamedTuple):
    """One reading of `/metrics`."""

    values: dict[str, float]
    """By name, label sets added up."""
    buckets: dict[str, dict[float, float]]
    """Cumulative counts by upper bound, by histogram, label sets added up."""
    infos: dict[str, dict[str, str]]
    """Labels of the samples whose names end in `_info`."""
    parts: dict[str, dict[str, float]]
    """By name, samples with one label `part` or `position`, by its value."""


def parse(text: str) -> Scrape:
    """Return the samples of an exposition; what cannot be read is passed over."""
    scrape = Scrape({}, {}, {}, {})
    for name, labels, number in _SAMPLE.findall(text):
        try:
            value = float(number)
        except ValueError:
            continue
        bound = _LE.search(labels)
        if bound and name.endswith("_bucket"):
            counts = scrape.buckets.setdefault(name.removesuffix("_bucket"), {})
            counts[float(bound[1])] = counts.get(float(bound[1]), 0.0) + value
        else:
            scrape.values[name] = scrape.values.get(name, 0.0) + value
            if part := _PART.fullmatch(labels):
                scrape.parts.setdefault(name, {})[part[1]] = value
            if name.endswith("_info"):
                scrape.infos[name] = dict(_LABEL.findall(labels))
    return scrape


class MetricsHistory:
    """What the last minute of scrapes says."""

    def __init__(self, names: MetricNames) -> None:
        self._names = names
        self._scrapes: deque[tuple[float, Scrape]] = deque(maxlen=HISTORY_S + 1)
        self._rates: deque[float] = deque(maxlen=HISTORY_S)
        self._acceptance: float | None = None
        self._fall = Fall(names)
        self._moved_t: float | None = None
        self._latency_names = (("ttft_ms", names.first_token), ("itl_ms", names.inter_token))
        self._latencies: dict[str, float] = {}
        self._busiest: list[float] = []
        """A heap of the highest rates; idle seconds have no part in it."""

    @property
    def best(self) -> float | None:
        """Mean tok/s of the ten busiest seconds that had work, of fewer where there were fewer."""
        busiest = self._busiest
        return round(sum(busiest) / len(busiest), 1) if busiest else None

    def recall(self, best: float | None) -> None:
        """Begin with the `best` of a supervisor before this one."""
        self._busiest = [] if best is None else [best] * BUSIEST_S

    def add(self, t: float, scrape: Scrape) -> None:
        """Take in a scrape made at `t` seconds."""
        if self._scrapes:
            then, before = self._scrapes[-1]
            made = self._delta(self._names.generated, before, scrape)
            rate = max(0.0, made) / max(t - then, 1e-3)
            self._note(round(scrape.values.get(self._names.throughput, rate), 1))
            if made > 0:
                self._moved_t = t
        if self._moved_t is None or not scrape.values.get(self._names.running):
            self._moved_t = t
        self._scrapes.append((t, scrape))
        oldest = self._scrapes[0][1]
        drafts = self._delta(self._names.drafts, oldest, scrape)
        if drafts > 0:
            accepted = self._delta(self._names.accepted, oldest, scrape)
            self._acceptance = round(1 + accepted / drafts, 2)
        elif length := scrape.values.get(self._names.acceptance):
            self._acceptance = round(length, 2)
        self._fall.note([each for _, each in self._scrapes])
        for name, histogram in self._latency_names:
            for share in PERCENTILES:
                seconds = _quantile(histogram, oldest, scrape, share / 100)
                if seconds is not None:
                    self._latencies[f"{name}_p{share}"] = round(1000 * seconds, 1)

    def metrics(self) -> Metrics | None:
        """Return the figures of now; None before the first scrape."""
        if not self._scrapes:
            return None
        scrape = self._scrapes[-1][1]
        values = scrape.values
        used, total = _cache(self._names, scrape)
        return Metrics(
            tok_s=self._rates[-1] if self._rates else 0.0,
            history=tuple(self._rates),
            running=int(values.get(self._names.running, 0)),
            waiting=int(values.get(self._names.waiting, 0)),
            kv_used=used,
            kv_total=total,
            acceptance=self._acceptance,
            speculation=self._speculation(),
            ttft_ms=self._latencies.get("ttft_ms_p50"),
        )

    def _speculation(self) -> Speculation | None:
        oldest, latest = self._scrapes[0][1], self._scrapes[-1][1]
        found = speculation(self._names.speculation, oldest, latest)
        return found and msgspec.structs.replace(found, fell_from=self._fall.before)

    def stalled(self, t: float) -> float:
        """Return for how many seconds, at `t`, requests have run without a token for any."""
        return 0.0 if self._moved_t is None else t - self._moved_t

    def latencies(self) -> dict[str, float]:
        """Return percentiles of the last minute in milliseconds: `ttft_ms_p50`, `itl_ms_p99`, …"""
        return dict(self._latencies)

    def _note(self, rate: float) -> None:
        self._rates.append(rate)
        if len(self._busiest) == BUSIEST_S:
            heapq.heappushpop(self._busiest, rate)
        elif rate > 0:
            heapq.heappush(self._busiest, rate)

    @staticmethod
    def _delta(name: str, before: Scrape, now: Scrape) -> float:
        return now.values.get(name, 0.0) - before.values.get(name, 0.0)


def _cache(names: MetricNames, scrape: Scrape) -> tuple[int, int]:
    """Return used tokens of the cache and all of them, 0 where it cannot be known."""
    if not names.kv_share:
        return int(scrape.values.get(names.kv_used, 0)), int(scrape.values.get(names.kv_total, 0))
    blocks = scrape.infos.get(names.kv_blocks, {})
    sizes = [blocks.get(label, "") for label in ("num_gpu_blocks", "block_size")]
    total = math.prod(int(size) if size.isdecimal() else 0 for size in sizes)
    return round(scrape.values.get(names.kv_share, 0.0) * total), total


def _quantile(name: str, before: Scrape, now: Scrape, share: float) -> float | None:
    """Return a quantile of the observations between two scrapes, None where there are none."""
    earlier = before.buckets.get(name, {})
    counts = sorted((le, n - earlier.get(le, 0.0)) for le, n in now.buckets.get(name, {}).items())
    if not counts or counts[-1][1] <= 0:
        return None
    wanted = counts[-1][1] * share
    low, below = 0.0, 0.0
    for bound, count in counts:
        if count >= wanted:
            # Nothing is known above the last finite bound.
            high = low if bound == float("inf") else bound
            return low + (high - low) * (wanted - below) / (count - below)
        low, below = bound, count
    return low
