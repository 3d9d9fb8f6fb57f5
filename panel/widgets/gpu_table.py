"""The GPUs as a table: a row each, with strips of what they did in the last two minutes."""

from __future__ import annotations

from panel.domain.gpu import Gpu
from panel.domain.series import Series
from panel.widgets import gpu_words
from panel.widgets.glyphs import Glyphs
from panel.widgets.spans import Row, Span, Tone
from panel.widgets.timeline import Values, pool, total

SECONDS = 120
_WIDE = 100
_FIXED = 84
"""Cells of a wide row without its two strips."""
_NARROW_STRIP = 8


def gpu_table(gpus: tuple[Gpu, ...], series: Series, width: int, glyphs: Glyphs) -> list[Row]:
    """Return the head and a row a GPU; `series` has their figures over time."""
    table = _Table(gpus, series, width, glyphs)
    return [table.head(), *map(table.row, gpus)]


def moved(series: Series, gpu: Gpu, columns: int) -> Values:
    """Return what went over the PCIe link of a GPU, both ways together, in equal spans."""
    names = (f"gpu{gpu.sample.index}.pcie_{way}" for way in ("rx", "tx"))
    return total([pool(series, name, columns, SECONDS) for name in names])


class _Table:
    """The columns at one width; strips of one kind share their scale."""

    def __init__(self, gpus: tuple[Gpu, ...], series: Series, width: int, glyphs: Glyphs) -> None:
        self._series = series
        self._glyphs = glyphs
        self._wide = width >= _WIDE
        self._strip = (width - _FIXED) // 2 if self._wide else _NARROW_STRIP
        self._moved = {gpu.sample.index: moved(series, gpu, self._strip) for gpu in gpus}
        known = (value for values in self._moved.values() for value in values)
        self._most = max((value for value in known if value is not None), default=0.0)

    def head(self) -> Row:
        """Return the head."""
        text = f"  gpu  r  {'util':<{self._strip + 5}}{'mem':>9}{'W':>9}{'temp':>5}{'MHz':>6}"
        text += f"{'link':>6} {'rx/tx GB/s':<11}"
        text += " " * (self._strip - 1) if self._wide else ""
        text += f"{'replays':>7}"
        return (Span(text + (f"{'nvlink':>10}{'ecc':>5}" if self._wide else ""), Tone.DIM),)

    def row(self, gpu: Gpu) -> Row:
        """Return the row of a GPU; what an alarm is about stands out, old figures do not."""
        sample = gpu.sample
        old = bool(gpu_words.trouble(gpu))
        figures = Tone.DIM if old else Tone.PLAIN
        alarmed = {alarm.kind for alarm in gpu.alarms if alarm.severity != "note"}

        def tone(*kinds: str) -> Tone:
            return Tone.WARN if alarmed & set(kinds) and not old else figures

        util = pool(self._series, f"gpu{sample.index}.util", self._strip, SECONDS)
        power = gpu_words.of_limit(sample.power, sample.power_limit)
        traffic = gpu_words.traffic(sample.pcie_rx, sample.pcie_tx)
        strips = Tone.DIM if old else Tone.GOOD
        return (
            Span(" "),
            self._sign(gpu),
            Span(f"{sample.index:>3}", Tone.BRIGHT),
            Span(f"{gpu_words.UNKNOWN if gpu.rank is None else gpu.rank:>3}  ", Tone.DIM),
            Span(f"{gpu_words.percent(sample.util):>4} ", figures),
            Span(self._glyphs.bars(util, self._strip, 100.0), strips),
            Span(f"{gpu_words.memory(sample):>9}", tone("ecc", "remap")),
            Span(f"{power:>9}", tone("power", "brake")),
            Span(f"{gpu_words.number(sample.temperature):>5}", tone("heat")),
            Span(f"{gpu_words.number(sample.clock):>6}", tone("heat", "brake")),
            Span(f"{gpu_words.link(sample):>6} ", tone("pcie_width", "pcie_gen")),
            Span(f"{traffic:<10}", figures),
            Span(self._traffic(gpu) if self._wide else " ", strips),
            Span(f"{gpu.replays:>7}", tone("replays")),
            *(self._more(gpu, tone("nvlink"), tone("ecc")) if self._wide else ()),
        )

    def _traffic(self, gpu: Gpu) -> str:
        return self._glyphs.bars(self._moved[gpu.sample.index], self._strip, self._most)

    def _more(self, gpu: Gpu, nvlink: Tone, ecc: Tone) -> Row:
        sample = gpu.sample
        rates = gpu_words.traffic(sample.nvlink_rx, sample.nvlink_tx)
        return Span(f"{rates:>10}", nvlink), Span(f"{gpu_words.number(sample.ecc):>5}", ecc)

    def _sign(self, gpu: Gpu) -> Span:
        alarm = gpu_words.worst(gpu)
        if alarm is not None:
            bad = alarm.severity == "failure"
            return self._glyphs.bad if bad else Span("!", Tone.WARN)
        if gpu_words.trouble(gpu):
            return Span("?", Tone.WARN)
        return Span(self._glyphs.on, Tone.GOOD)
