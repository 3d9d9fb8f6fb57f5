"""One screen of text: the node and its launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap

from panel.commands._failure import failure
from panel.commands._words import fit, launch_title, who
from panel.domain.snapshot import LaunchView, Metrics, ProcessView, Snapshot
from panel.domain.states import AS_PROCESS, ASCII_SIGNS, SIGNS, ProcessState
from panel.widgets.kept_words import kept_words
from panel.widgets.speculation_rows import pays
from panel.widgets.words import clock, size, span_of, spent, taken

_WHO = 23
"""Columns of rank and phase."""


def screen(snapshot: Snapshot, columns: int = 80, *, ascii_signs: bool = False) -> Iterator[str]:
    """Yield the lines of `moepanel status`, none wider than `columns`."""
    host, launch = snapshot.host.name, snapshot.launch
    lines: Iterable[str] = (f"{host}  no launch yet", "moepanel up makes one")
    if launch is not None:
        lines = _launch(host, launch, ASCII_SIGNS if ascii_signs else SIGNS, columns)
    for line in lines:
        yield fit(line, columns).rstrip()
    if snapshot.kept is not None:
        yield fit(kept_words(snapshot.kept), columns).rstrip()
    if launch is not None:
        for line in failure(launch):
            yield from wrap(line, columns, subsequent_indent="    ", drop_whitespace=False)


def _launch(
    host: str, launch: LaunchView, signs: dict[ProcessState, str], columns: int
) -> Iterator[str]:
    stand = f"{signs[AS_PROCESS[launch.state]]} {launch.state} {clock(launch.t)}"
    yield f"{host}  {launch_title(launch)}  {stand}  {' '.join(launch.chips)}"
    if launch.state.live:
        if launch.metrics is not None:
            yield _metrics(launch.metrics)
        ready = "" if launch.ready_s is None else f"  ready after {span_of(launch.ready_s)}"
        yield launch.url + ready
        if launch.start:
            first, *more = spent(launch.start, columns - 8)
            yield f"start   {first}"
            yield from (f"        {line}" for line in more)
        if launch.memory:
            yield "memory  " + "  ".join(taken(launch.memory))
    if launch.note:
        yield launch.note
    yield from launch.held
    nodes = any(process.node for process in launch.processes)
    figures = f"{'node':>11}" if nodes else f"{'cpu':>5} {'rss':>5}"
    yield f"    r  {'phase':<{_WHO - 5}} {'pid':>7} {figures} {'beat':>6}  last line"
    for process in launch.processes:
        yield _row(process, signs[process.state])


def _metrics(metrics: Metrics) -> str:
    words = [f"{metrics.tok_s:.0f} tok/s  run {metrics.running} wait {metrics.waiting}"]
    if metrics.kv_total:
        words.append(f"kv {100 * metrics.kv_used / metrics.kv_total:.0f}%")
    if metrics.acceptance is not None:
        words.append(f"accept {metrics.acceptance:.1f}{pays(metrics.speculation)}")
    if metrics.ttft_ms is not None:
        words.append(f"ttft {metrics.ttft_ms:.0f} ms")
    return "  ".join(words)


def _row(process: ProcessView, sign: str) -> str:
    named = f"{sign} {who(process, _WHO)} {process.pid:>7}"
    node = f" {process.node[:11]:>11}" if process.node else ""
    if process.exit is not None:
        return f"{named}{node}  {process.exit.words}"
    beat = "" if process.beat_age is None else f"{process.beat_age:.1f}s"
    usage = node or f" {'-':>5} {'-':>5}"
    if process.rss and not node:
        usage = f" {process.cpu:>4.0f}% {size(process.rss):>5}"
    last = "stopped (state T)" if process.stopped else process.last_line
    return f"{named}{usage} {beat:>6}  {last}"
