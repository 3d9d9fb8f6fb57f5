"""The numbers of `/metrics`: counters are rank 0's, times are measured here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from panel.server.messages import Finish, Stats

_SHORT = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5)
_LONG = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)

_GAUGES: tuple[tuple[str, str, Callable[[Stats], float]], ...] = (
    ("requests_running", "Sequences in the batch", lambda s: s.running),
    ("requests_waiting", "Sequences that wait for room", lambda s: s.waiting),
    ("kv_used_tokens", "Tokens of KV cache in use", lambda s: s.kv_used),
    ("kv_capacity_tokens", "Tokens the KV cache holds", lambda s: s.kv_total),
    ("step_seconds", "Median wall time of the last decode steps", lambda s: s.step_ms / 1e3),
)
_COUNTERS: tuple[tuple[str, str, Callable[[Stats], float]], ...] = (
    ("steps", "Model steps", lambda s: s.steps),
    ("prompt_tokens", "Tokens prefilled", lambda s: s.prompt_tokens),
    ("generation_tokens", "Tokens generated", lambda s: s.generated_tokens),
    ("preemptions", "Sequences put back because the KV cache was full", lambda s: s.preemptions),
    ("spec_drafts", "Verify passes that had a draft", lambda s: s.spec_drafts),
    ("spec_draft_tokens", "Tokens drafted", lambda s: s.spec_draft_tokens),
    ("spec_accepted_tokens", "Drafted tokens accepted", lambda s: s.spec_accepted_tokens),
)


class _EngineCollector(Collector):
    """Reads rank 0's last statistics when somebody scrapes, and only then."""

    def __init__(self, stats: Callable[[], Stats | None]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        if stats is None:
            return
        for name, text, value in _GAUGES:
            yield GaugeMetricFamily(f"moepanel_{name}", text, value(stats))
        for name, text, value in _COUNTERS:
            yield CounterMetricFamily(f"moepanel_{name}", text, value(stats))
        accepted = CounterMetricFamily(
            "moepanel_spec_accepted_tokens_per_position",
            "Drafted tokens accepted, by place in the draft",
            labels=["position"],
        )
        for position, count in enumerate(stats.spec_accepted_per_position):
            accepted.add_metric([str(position)], count)
        yield accepted


class Metrics:
    """All metrics of one front end, in a registry of its own."""

    def __init__(self, stats: Callable[[], Stats | None]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(stats))

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            name = f"moepanel_{name}_seconds"
            return Histogram(name, text, buckets=buckets, registry=self._registry)

        self.first_token = histogram("time_to_first_token", "Arrival to first token", _LONG)
        self._inter_token = histogram("inter_token_latency", "Gap between two tokens", _SHORT)
        self._end_to_end = histogram("e2e_request_latency", "Arrival to last token", _LONG)
        self.queue = histogram("request_queue_time", "Wait for room in the batch", _LONG)
        self._finished = Counter(
            "moepanel_requests", "Sequences by finish", ["finish"], registry=self._registry
        )

    def finished(self, finish: Finish, seconds: float) -> None:
        """Count one sequence that ended `seconds` after its request arrived."""
        self._finished.labels(finish).inc()
        self._end_to_end.observe(seconds)

    def gap(self, seconds: float, tokens: int) -> None:
        """Count `tokens` of one sequence that came together, `seconds` after its last ones."""
        for _ in range(tokens):
            self._inter_token.observe(seconds / tokens)

    def render(self) -> bytes:
        """Return the exposition in Prometheus' text format."""
        return generate_latest(self._registry)
