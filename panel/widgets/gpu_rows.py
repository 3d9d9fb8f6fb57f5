"""The GPU screen besides its table: traffic beside speed, the slow rank, why there is no GPU."""

from __future__ import annotations

from collections.abc import Iterable

from panel.domain.series import Series
from panel.domain.snapshot import Snapshot
from panel.widgets import gpu_words
from panel.widgets.glyphs import Glyphs
from panel.widgets.gpu_table import SECONDS, moved
from panel.widgets.slow_rank import slow_rank
from panel.widgets.spans import BLANK, Row, Span, Tone, cells, clip, fit, wrap
from panel.widgets.timeline import newest, pool, total
from panel.widgets.words import size

PREFIXES = ("engine.tok_s", "gpu")
_NAME = 13
_VALUE = 18


def overview(snapshot: Snapshot, series: Series, width: int, glyphs: Glyphs) -> list[Row]:
    """Return speed and traffic of the node over the same two minutes, one above the other."""
    columns = min(width - _NAME - _VALUE - 1, SECONDS)
    samples = [gpu.sample for gpu in snapshot.gpus if not gpu_words.trouble(gpu)]
    rows = []
    if snapshot.launch is not None:
        speed = pool(series, "engine.tok_s", columns, SECONDS)
        now = gpu_words.number(newest(series, "engine.tok_s"))
        rows.append(_strip("tok/s", now, glyphs.bars(speed, columns)))
    link = total([moved(series, gpu, columns) for gpu in snapshot.gpus])
    rates = _rates((each.pcie_rx, each.pcie_tx) for each in samples)
    rows.append(_strip("pcie GB/s", rates, glyphs.bars(link, columns)))
    if any(each.nvlink_rx is not None for each in samples):
        rates = _rates((each.nvlink_rx, each.nvlink_tx) for each in samples)
        rows.append(_strip("nvlink GB/s", rates, ""))
    return rows


def _rates(pairs: Iterable[tuple[float | None, float | None]]) -> str:
    known = [(into or 0.0, out or 0.0) for into, out in pairs]
    into, out = sum(into for into, _ in known), sum(out for _, out in known)
    return f"rx {gpu_words.gigabytes(into)} tx {gpu_words.gigabytes(out)}"


def _strip(name: str, value: str, bars: str) -> Row:
    return (
        Span(f" {name:<{_NAME - 1}}", Tone.DIM),
        Span(f"{value:<{_VALUE}}", Tone.BRIGHT),
        Span(bars, Tone.GOOD),
    )


def slowest(snapshot: Snapshot, width: int, glyphs: Glyphs) -> list[Row]:
    """Return which rank slows the others down; nothing while no launch serves."""
    if snapshot.launch is None or not snapshot.launch.state.live:
        return []
    slow = slow_rank(snapshot)
    if slow is None:
        return [(Span(" no rank is slower than the others", Tone.DIM),)]
    text = clip(f" rank {slow.rank} is slow: it {slow.why}", width, glyphs.more)
    return [(Span(text, Tone.WARN),)]


def without(snapshot: Snapshot, width: int) -> list[Row]:
    """Return CPU and memory of every rank, and why there are no GPUs."""
    host = snapshot.host
    why = wrap(f"no GPU: {host.gpu_note or 'none was found'}", width - 4)
    free = f"{size(host.memory_available)} of {size(host.memory_total)} memory free"
    rows: list[Row] = [
        *((Span(f" {line}", Tone.WARN),) for line in why),
        (Span(f" {host.cpus} cpus, load {host.load:.1f}, {free}", Tone.DIM),),
        BLANK,
    ]
    ranks = snapshot.launch.ranks if snapshot.launch else ()
    if not ranks:
        return [*rows, (Span(" no ranks run: Esc, then r launches", Tone.DIM),)]
    head = f"   r  {'phase':<17}{'cpu':>6}{'threads':>9}{'rss':>8}{'step':>9}"
    rows.append((Span(head, Tone.DIM),))
    for each in ranks:
        row = (Span(f"{each.rank:>4}  ", Tone.BRIGHT), Span(fit(each.phase, 17)))
        figures = f"{each.cpu:>5.0f}%{each.threads:>9}{size(each.rss):>8}{each.step:>9}"
        tone = Tone.DIM if each.exit else Tone.PLAIN
        rows.append((*row, Span(clip(figures, width - cells(row)), tone)))
    return rows
