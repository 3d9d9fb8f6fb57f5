"""Time to the first token and between tokens: percentiles out of every engine's histograms."""

from __future__ import annotations

import pytest

from panel.domain.series import Series
from panel.engines import ENGINES
from panel.probes.series import History
from panel.supervisor.watch.figures import engine_figures
from panel.supervisor.watch.metrics import MetricsHistory, parse
from panel.widgets.glyphs import UNICODE
from panel.widgets.node_charts import charts

BOUNDS = ("0.01", "0.02", "0.05", "0.1", "+Inf")
NAMES = [f"engine.{kind}_ms_p{share}" for kind in ("ttft", "itl") for share in (50, 95, 99)]


def exposition(names: tuple[str, str], counts: tuple[int, ...], replicas: int) -> str:
    """Return two histograms, each split over the replicas of an engine."""
    return "\n".join(
        f'{name}_bucket{{engine="{replica}",le="{bound}"}} {count}'
        for name in names
        for replica in range(replicas)
        for bound, count in zip(BOUNDS, counts, strict=True)
    )


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_percentiles_of_the_last_minute(engine: str, replicas: int) -> None:
    known = ENGINES[engine].metric_names
    names = (known.first_token, known.inter_token)
    history = MetricsHistory(known)
    history.add(0.0, parse(exposition(names, (1000, 1000, 1000, 1000, 1000), replicas)))
    assert not set(NAMES) & set(engine_figures(history))

    # A hundred observations: half below 10 ms, 45 below 20, 4 below 50, the last below 100.
    history.add(10.0, parse(exposition(names, (1050, 1095, 1099, 1100, 1100), replicas)))
    figures = engine_figures(history)
    assert [figures[name] for name in NAMES] == [10.0, 20.0, 50.0] * 2


def test_they_are_kept_and_drawn() -> None:
    history = History()
    for t in range(3):
        history.add(float(t), {name: 10.0 * (1 + n) for n, name in enumerate(NAMES)})
    series = history.series(("engine.",))
    assert set(series.values) == set(NAMES)
    text = "\n".join("".join(span.text for span in row) for row in charts(series, 120, 40, UNICODE))
    assert "ttft ms  p50 10 p95 20 p99 30" in text
    assert "itl ms  p50 40 p95 50 p99 60" in text
    assert charts(Series(), 120, 40, UNICODE) == []
