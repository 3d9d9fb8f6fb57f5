"""Prometheus text → the figures of the engine. Pure."""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

from panel.domain.snapshot import Metrics
from panel.engines.base import MetricNames

HISTORY_S = 60
BEST_S = 10
"""The ledger keeps the best mean of this many seconds."""
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", re.MULTILINE)
_LE = re.compile(r'le="([^"]+)"')


class Scrape(NamedTuple):
    """One reading of `/metrics`."""

    values: dict[str, float]
    """By name, label sets added up."""
    buckets: dict[str, dict[float, float]]
    """Cumulative counts by upper bound, by histogram."""


def parse(text: str) -> Scrape:
    """Return the samples of an exposition; what cannot be read is passed over."""
    scrape = Scrape({}, {})
    for name, labels, number in _SAMPLE.findall(text):
        try:
            value = float(number)
        except ValueError:
            continue
        bound = _LE.search(labels)
        if bound and name.endswith("_bucket"):
            scrape.buckets.setdefault(name.removesuffix("_bucket"), {})[float(bound[1])] = value
        else:
            scrape.values[name] = scrape.values.get(name, 0.0) + value
    return scrape


class MetricsHistory:
    """What the last minute of scrapes says."""

    def __init__(self, names: MetricNames) -> None:
        self._names = names
        self._scrapes: deque[tuple[float, Scrape]] = deque(maxlen=HISTORY_S + 1)
        self._rates: deque[float] = deque(maxlen=HISTORY_S)
        self._acceptance: float | None = None
        self._ttft: float | None = None
        self.best: float | None = None
        """Highest ten-second mean of tok/s."""

    def add(self, t: float, scrape: Scrape) -> None:
        """Take in a scrape made at `t` seconds."""
        if self._scrapes:
            then, before = self._scrapes[-1]
            made = self._delta(self._names.generated, before, scrape)
            self._rates.append(round(max(0.0, made) / max(t - then, 1e-3), 1))
            self._note_best()
        self._scrapes.append((t, scrape))
        oldest = self._scrapes[0][1]
        drafts = self._delta(self._names.drafts, oldest, scrape)
        if drafts > 0:
            accepted = self._delta(self._names.accepted, oldest, scrape)
            self._acceptance = round(1 + accepted / drafts, 2)
        median = _median(self._names.first_token, oldest, scrape)
        if median is not None:
            self._ttft = round(1000 * median, 1)

    def metrics(self) -> Metrics | None:
        """Return the figures of now; None before the first scrape."""
        if not self._scrapes:
            return None
        values = self._scrapes[-1][1].values
        return Metrics(
            tok_s=self._rates[-1] if self._rates else 0.0,
            history=tuple(self._rates),
            running=int(values.get(self._names.running, 0)),
            waiting=int(values.get(self._names.waiting, 0)),
            kv_used=int(values.get(self._names.kv_used, 0)),
            kv_total=int(values.get(self._names.kv_total, 0)),
            acceptance=self._acceptance,
            ttft_ms=self._ttft,
        )

    def _note_best(self) -> None:
        if len(self._rates) >= BEST_S:
            mean = round(sum(list(self._rates)[-BEST_S:]) / BEST_S, 1)
            if mean > (self.best or 0.0):
                self.best = mean

    @staticmethod
    def _delta(name: str, before: Scrape, now: Scrape) -> float:
        return now.values.get(name, 0.0) - before.values.get(name, 0.0)


def _median(name: str, before: Scrape, now: Scrape) -> float | None:
    """Return the median of the observations between two scrapes, None where there are none."""
    earlier = before.buckets.get(name, {})
    counts = sorted((le, n - earlier.get(le, 0.0)) for le, n in now.buckets.get(name, {}).items())
    if not counts or counts[-1][1] <= 0:
        return None
    half = counts[-1][1] / 2
    low, below = 0.0, 0.0
    for bound, count in counts:
        if count >= half:
            # Nothing is known above the last finite bound.
            high = low if bound == float("inf") else bound
            return low + (high - low) * (half - below) / (count - below)
        low, below = bound, count
    return low
