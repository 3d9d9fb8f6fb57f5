"""What is kept of each second of a launch: engine and GPUs under stable names. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from panel.domain.gpu import Gpu
from panel.supervisor.watch.metrics import MetricsHistory

Figures = dict[str, float | None]


def engine_figures(history: MetricsHistory) -> Figures:
    """Return the engine's figures of now; empty before it has given any."""
    metrics = history.metrics()
    if metrics is None:
        return {}
    return {
        "engine.tok_s": metrics.tok_s,
        "engine.running": metrics.running,
        "engine.waiting": metrics.waiting,
        "engine.kv": round(metrics.kv_used / metrics.kv_total, 3) if metrics.kv_total else None,
        "engine.acceptance": metrics.acceptance,
        **{f"engine.{name}": value for name, value in history.latencies().items()},
    }


def gpu_figures(gpus: Iterable[Gpu]) -> Figures:
    """Return the figures of every GPU; those that it does not have are left out."""
    figures: Figures = {}
    for gpu in gpus:
        sample = gpu.sample
        found: Figures = {
            "util": sample.util,
            "power": None if sample.power is None else round(sample.power),
            "temperature": sample.temperature,
            "memory": sample.memory_used,
            "pcie_rx": sample.pcie_rx,
            "pcie_tx": sample.pcie_tx,
        }
        stale = bool(sample.trouble or gpu.age)
        for name, value in found.items():
            if value is not None:
                figures[f"gpu{sample.index}.{name}"] = None if stale else value
    return figures
