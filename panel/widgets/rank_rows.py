"""The ranks as a table: on GPUs with their GPU's figures, else with CPU and memory."""

from __future__ import annotations

from panel.domain.gpu import Gpu
from panel.domain.phases import Phase
from panel.domain.snapshot import LaunchView, ProcessView, Snapshot
from panel.domain.states import LaunchState, ProcessState
from panel.widgets import gpu_words
from panel.widgets.glyphs import Glyphs
from panel.widgets.node_rows import first_failed
from panel.widgets.spans import Row, Span, Tone, cells, clip, fit, right, spread
from panel.widgets.words import size

_WIDE = 100
_GPU_HEAD = f"{'gpu':>3}{'mem':>9}{'util':>6}{'W':>5}  {'pcie rx/tx':<12}"
_GPU_PHASE = 13
"""Cells of the phase; with the batch size that is captured it needs the whole of `_PHASE`."""
_PHASE = 17
_GAP = 3
"""Cells between the heads and why there are no others."""


def ranks(snapshot: Snapshot, launch: LaunchView, width: int, glyphs: Glyphs) -> list[Row]:
    """Return the table: its head and a row a rank; others of the gang where they matter."""
    table = _Table(snapshot, launch, width, glyphs)
    others = [p for p in launch.processes if p.rank is None and _matters(p, launch)]
    rows = [table.row(process) for process in launch.ranks]
    if launch.state is LaunchState.LAUNCHING:
        rows += [_awaited(rank, glyphs) for rank in range(len(rows), launch.world_size)]
    return [table.head(), *rows, *map(table.row, others)]


def progress(process: ProcessView) -> str:
    """Return the phase with how far it is: `weights 43%`, `capture 3/6 bs 8`."""
    if process.total <= 0:
        return process.phase
    if process.phase == Phase.CAPTURE:
        return f"{process.phase} {process.done}/{process.total} bs {process.detail}"
    return f"{process.phase} {process.done / process.total:.0%}"


def _awaited(rank: int, glyphs: Glyphs) -> Row:
    """Return the row of a rank that does not exist yet, so that the table keeps its height."""
    sign = glyphs.process(ProcessState.BUSY)
    return (Span(" "), sign, Span(f" {rank:>2}  "), Span("not started", Tone.DIM))


def _matters(process: ProcessView, launch: LaunchView) -> bool:
    """Whether a process without a rank deserves a row: it is all there is, or it is in trouble."""
    return not launch.ranks or process.state in (ProcessState.FAILED, ProcessState.STALE)


class _Table:
    """The columns of one snapshot at one width."""

    def __init__(self, snapshot: Snapshot, launch: LaunchView, width: int, glyphs: Glyphs) -> None:
        self._width = width
        self._glyphs = glyphs
        self._wide = width >= _WIDE
        self._blamed = first_failed(launch)
        self._gpus = gpu_words.by_rank(snapshot)
        self._nodes = any(process.node for process in launch.processes)
        """The ranks are on several nodes."""
        self._on_gpus = gpu_words.on_gpus(snapshot)
        self._phase = _PHASE if self._wide or not self._on_gpus else _GPU_PHASE
        self._why = snapshot.host.gpu_note or "ranks on the CPU"
        self._short = "no GPU" if snapshot.host.gpu_note else "on CPU"
        if self._nodes:
            self._why, self._short = "no GPUs seen on the nodes", "no GPU"

    def head(self) -> Row:
        """Return the head; it says why there are no columns of GPUs."""
        if self._on_gpus:
            middle = _GPU_HEAD + (f"{'temp':>6}{'step':>9} " if self._wide else "")
        else:
            middle = f"{'node':>12} " if self._nodes else f"{'pid':>8} "
            middle += f"{'cpu':>5} {'rss':>6} "
            last = "pid" if self._nodes else "step"
            middle += f"{'threads':>8} {last:>8} " if self._wide else ""
        text = f"    r  {'phase':<{self._phase}}{middle}{'beat':>6}  last line"
        row = (Span(text, Tone.DIM),)
        if self._on_gpus:
            return row
        room = self._width - cells(row) - _GAP
        why = self._why if len(self._why) <= room else self._short
        return spread(row, (Span(clip(why, room, self._glyphs.more), Tone.DIM),), self._width)

    def row(self, process: ProcessView) -> Row:
        """Return the row of a process; one that fell with the gang is not to blame."""
        gpu = None if process.rank is None else self._gpus.get(process.rank)
        sign = self._sign(process, gpu)
        gone = process.exit is not None
        aged = process.state is ProcessState.STALE
        phase = Tone.PLAIN if process.state is ProcessState.SERVING else sign.tone
        age = f"{process.beat_age:.1f}s" if process.beat_age is not None and not gone else "-"
        row = (
            Span(" "),
            sign,
            *self._who(process, phase),
            *(self._gpu_cells(process, gpu) if self._on_gpus else self._cpu_cells(process)),
            Span(right(age, 6), Tone.WARN if aged else Tone.DIM),
            Span("  "),
        )
        room = self._width - cells(row)
        text, tone = _last(process, gpu, sign, room)
        if self._on_gpus and process.node:
            text = f"{process.node}: {text}"
        return (*row, Span(clip(text, room, self._glyphs.more), tone))

    def _who(self, process: ProcessView, tone: Tone) -> Row:
        """Return rank and phase; one without a rank has its name in their place."""
        if process.rank is None:
            name = fit(f"{process.label} {progress(process)}", self._phase + 4, self._glyphs.more)
            return (Span(f" {name}", tone),)
        phase = fit(progress(process), self._phase, self._glyphs.more)
        return Span(f" {process.rank:>2}  ", Tone.BRIGHT), Span(phase, tone)

    def _sign(self, process: ProcessView, gpu: Gpu | None) -> Span:
        sign = self._glyphs.process(process.state)
        if self._blamed is not None and process != self._blamed:
            return Span(sign.text, Tone.DIM)
        if process.state not in (ProcessState.SERVING, ProcessState.BUSY) or gpu is None:
            return sign
        alarm = gpu_words.worst(gpu)
        if alarm is not None:
            return Span("!", Tone.BAD if alarm.severity == "failure" else Tone.WARN)
        return Span("?", Tone.WARN) if gpu_words.trouble(gpu) else sign

    def _cpu_cells(self, process: ProcessView) -> Row:
        unknown = process.exit is not None or not process.rss
        figures = Tone.DIM if unknown else Tone.PLAIN
        node = fit(process.node, 12, self._glyphs.more).strip()
        first = right(node, 12) if self._nodes else f"{process.pid:>8}"
        last = process.pid if self._nodes else process.step
        extra = f"{process.threads:>8} {last:>8} " if self._wide else ""
        return (
            Span(f"{first} ", Tone.DIM),
            Span(f"{'-' if unknown else f'{process.cpu:.0f}%':>5} ", figures),
            Span(f"{'-' if unknown else size(process.rss):>6} ", figures),
            Span(extra, Tone.DIM),
        )

    def _gpu_cells(self, process: ProcessView, gpu: Gpu | None) -> Row:
        step = f"{process.step:>9} " if self._wide else ""
        if gpu is None:
            blank = " " * (len(_GPU_HEAD) - 3 + (6 if self._wide else 0))
            return (Span(f"{gpu_words.UNKNOWN:>3}{blank}{step}", Tone.DIM),)
        sample = gpu.sample
        old = bool(gpu_words.trouble(gpu))
        plain, warn = (Tone.DIM, Tone.DIM) if old else (Tone.PLAIN, Tone.WARN)
        narrow = any(alarm.kind in ("pcie_width", "pcie_gen") for alarm in gpu.alarms)
        heat = f"{gpu_words.number(sample.temperature):>6}" if self._wide else ""
        return (
            Span(f"{sample.index:>3}", Tone.DIM),
            Span(f"{gpu_words.memory(sample):>9}{gpu_words.percent(sample.util):>6}", plain),
            Span(f"{gpu_words.number(sample.power):>5}  ", plain),
            Span(f"{gpu_words.traffic(sample.pcie_rx, sample.pcie_tx):<8}", plain),
            Span(f"{gpu_words.link(sample):<4}", warn if narrow else Tone.DIM),
            Span(heat, plain),
            Span(step, Tone.DIM),
        )


def _last(process: ProcessView, gpu: Gpu | None, sign: Span, room: int) -> tuple[str, Tone]:
    """Return what the last column says: the end, what ails the GPU, or the last line."""
    if process.exit is not None:
        return process.exit.words, sign.tone
    if process.stopped:
        return "stopped (state T)", Tone.BAD
    ails = gpu_words.in_words(gpu, room)
    return (ails, sign.tone) if ails else (process.last_line, Tone.DIM)
