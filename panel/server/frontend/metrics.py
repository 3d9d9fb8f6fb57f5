"""The numbers of `/metrics`: counters are rank 0's, times are measured here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from panel.server.messages import Finish, Stats

_SHORT = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5)
_LONG = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)


def _hit_rate(stats: Stats) -> float:
    return stats.cached_tokens / max(1, stats.prompt_tokens)


_GAUGES: tuple[tuple[str, str, Callable[[Stats], float]], ...] = (
    ("requests_running", "Sequences in the batch", lambda s: s.running),
    ("requests_waiting", "Sequences that wait for room", lambda s: s.waiting),
    ("kv_used_tokens", "Tokens of KV cache in use", lambda s: s.kv_used),
    ("kv_capacity_tokens", "Tokens the KV cache holds", lambda s: s.kv_total),
    ("kv_cached_tokens", "Tokens of past prompts kept for new ones", lambda s: s.kv_cached),
    ("prefix_cache_hit_rate", "Share of prompt tokens found in the cache", _hit_rate),
    ("step_seconds", "Median wall time of the last decode steps", lambda s: s.step_ms / 1e3),
    ("step_collectives", "Collectives of a decode step", lambda s: s.step_collectives),
    (
        "step_collective_seconds",
        "Time of rank 0 in the collectives of a decode step",
        lambda s: s.step_collective_ms / 1e3,
    ),
    ("spec_draft_length", "Tokens drafted in the last decode step", lambda s: s.spec_draft_length),
)
_KNOWN_LATER: tuple[tuple[str, str, Callable[[Stats], float | None]], ...] = (
    (
        "expert_balancedness",
        "Mean over maximum of the ranks' expert load since the last rebalance",
        lambda s: s.expert_balancedness,
    ),
    (
        "spec_tokens_per_cycle",
        "Mean tokens of the last steps with a draft",
        lambda s: s.spec_tokens_per_cycle,
    ),
    (
        "spec_break_even_tokens",
        "Tokens that a step with a draft has to give to pay",
        lambda s: s.spec_break_even,
    ),
    (
        "spec_simulated_acceptance",
        "The acceptance that is simulated: the text means nothing",
        lambda s: s.spec_simulated,
    ),
)
_COUNTERS: tuple[tuple[str, str, Callable[[Stats], float]], ...] = (
    ("steps", "Model steps", lambda s: s.steps),
    ("prefill_steps", "Steps with a prompt or a part of one", lambda s: s.prefill_steps),
    ("prompt_tokens", "Tokens of prompts", lambda s: s.prompt_tokens),
    ("cached_prompt_tokens", "Tokens of prompts found in the cache", lambda s: s.cached_tokens),
    ("generation_tokens", "Tokens generated", lambda s: s.generated_tokens),
    ("rebalances", "Times that experts were given new places", lambda s: s.rebalances),
    ("preemptions", "Sequences put back because the KV cache was full", lambda s: s.preemptions),
    ("spec_drafts", "Verify passes that had a draft", lambda s: s.spec_drafts),
    ("spec_draft_tokens", "Tokens drafted", lambda s: s.spec_draft_tokens),
    ("spec_accepted_tokens", "Drafted tokens accepted", lambda s: s.spec_accepted_tokens),
    ("spec_cycles", "Steps in which a draft head guessed", lambda s: s.spec_cycles),
    (
        "spec_foreseen_cycles",
        "Those of them whose verification the head laid out on the device",
        lambda s: s.spec_foreseen,
    ),
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
        for name, text, known in _KNOWN_LATER:
            if (number := known(stats)) is not None:
                yield GaugeMetricFamily(f"moepanel_{name}", text, number)
        yield _labelled(
            "spec_seconds",
            "Time of rank 0 in the parts of steps with drafts",
            "part",
            stats.spec_seconds.items(),
        )
        yield _labelled(
            "spec_drafted_tokens_per_position",
            "Tokens drafted, by place in the draft",
            "position",
            enumerate(stats.spec_drafted_per_position),
        )
        yield _labelled(
            "spec_accepted_tokens_per_position",
            "Drafted tokens accepted, by place in the draft",
            "position",
            enumerate(stats.spec_accepted_per_position),
        )
        yield _labelled(
            "decode_steps", "Decode steps by padded batch size", "bucket", stats.decode_steps
        )


def _labelled(
    name: str, text: str, label: str, counts: Iterable[tuple[object, float]]
) -> CounterMetricFamily:
    family = CounterMetricFamily(f"moepanel_{name}", text, labels=[label])
    for value, count in counts:
        family.add_metric([str(value)], count)
    return family


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
