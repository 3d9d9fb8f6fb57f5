"""Drafts as the supervisor reads them from our engine's own exposition."""

from __future__ import annotations

from panel.engines import find_engine
from panel.server.frontend.metrics import Metrics
from panel.server.messages import Stats
from panel.supervisor.watch.metrics import MetricsHistory, parse


def exposition(cycles: int, accepted: tuple[int, int], simulated: float | None = None) -> str:
    stats = Stats(
        running=1,
        waiting=0,
        kv_used=0,
        kv_total=100,
        steps=cycles,
        prompt_tokens=0,
        generated_tokens=cycles + sum(accepted),
        preemptions=0,
        spec_drafts=cycles,
        spec_draft_tokens=2 * cycles,
        spec_accepted_tokens=sum(accepted),
        spec_accepted_per_position=list(accepted),
        spec_drafted_per_position=[cycles, cycles],
        spec_draft_length=2,
        spec_tokens_per_cycle=2.0,
        spec_break_even=1.625,
        spec_cycles=cycles,
        spec_seconds={"extend": 0.001 * cycles, "draft": 0.004 * cycles, "verify": 0.01 * cycles},
        spec_simulated=simulated,
        step_collectives=17.0,
        step_collective_ms=2.5,
    )
    return Metrics(lambda: stats).render().decode()


def history(*texts: str) -> MetricsHistory:
    found = MetricsHistory(find_engine("builtin").metric_names)
    for second, text in enumerate(texts):
        found.add(float(second), parse(text))
    return found


def test_all_that_the_engine_tells() -> None:
    metrics = history(exposition(100, (80, 50)), exposition(200, (150, 90))).metrics()
    assert metrics is not None
    assert metrics.acceptance == 2.1
    found = metrics.speculation
    assert found is not None
    assert found.drafts == 2
    assert found.break_even == 1.625
    assert found.accepted == (0.7, 0.4)
    assert found.cycle_ms == {"extend": 1.0, "draft": 4.0, "verify": 10.0}
    assert (found.collectives, found.collective_ms) == (17.0, 2.5)
    assert found.simulated is None
    assert found.fell_from is None


def test_simulated_acceptance_is_passed_on() -> None:
    metrics = history(exposition(1, (0, 0)), exposition(9, (4, 2), simulated=0.5)).metrics()
    assert metrics is not None
    assert metrics.speculation is not None
    assert metrics.speculation.simulated == 0.5


def test_nothing_is_said_without_drafts() -> None:
    metrics = history(exposition(0, (0, 0)), exposition(0, (0, 0))).metrics()
    assert metrics is not None
    assert metrics.speculation is None


def test_a_sudden_fall_is_noticed_until_it_is_over() -> None:
    found = MetricsHistory(find_engine("builtin").metric_names)
    cycles, accepted, alarms = 0, 0, []
    shares = [1.5] * 40 + [0.2] * 25 + [1.5] * 25
    for second, share in enumerate(shares):
        cycles += 20
        accepted += round(20 * share)
        found.add(float(second), parse(exposition(cycles, (accepted, 0))))
        metrics = found.metrics()
        assert metrics is not None
        assert metrics.speculation is not None
        alarms.append(metrics.speculation.fell_from)
    assert alarms[:40] == [None] * 40
    assert alarms[51] == 2.5
    assert alarms[64] == 2.5
    assert alarms[-1] is None


def test_a_slow_decline_is_no_alarm() -> None:
    texts, cycles, accepted = [], 0, 0
    for second in range(60):
        cycles += 20
        accepted += round(20 * (1.5 - second / 120))
        texts.append(exposition(cycles, (accepted, 0)))
    metrics = history(*texts).metrics()
    assert metrics is not None
    assert metrics.speculation is not None
    assert metrics.speculation.fell_from is None
