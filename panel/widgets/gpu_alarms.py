"""The alarms of all GPUs in words, each with what to do; GPUs that share one are named together."""

from __future__ import annotations

from panel.domain.gpu import Gpu, GpuAlarm
from panel.domain.snapshot import Snapshot
from panel.widgets import gpu_words
from panel.widgets.glyphs import Glyphs
from panel.widgets.spans import Row, Span, Tone, wrap

_SEVERITIES = ("failure", "warning", "note")


def alarms(snapshot: Snapshot, width: int, glyphs: Glyphs) -> list[Row]:
    """Return the worst first, after what is known of GPUs that give no figures."""
    rows: list[Row] = []
    note = snapshot.host.gpu_note
    if note:
        rows += _told(Span("?", Tone.WARN), note, "", width, glyphs)
    for gpu in snapshot.gpus:
        if trouble := gpu_words.trouble(gpu):
            text = f"{gpu_words.name(gpu)}: {trouble}; shown are the last figures"
            rows += _told(Span("?", Tone.WARN), text, "", width, glyphs)
    for alarm, gpus in _shared(snapshot.gpus):
        rows += _told(_sign(alarm, glyphs), _words(alarm, gpus), alarm.do, width, glyphs)
    return rows or [(Span(" none", Tone.DIM),)]


def _shared(gpus: tuple[Gpu, ...]) -> list[tuple[GpuAlarm, list[Gpu]]]:
    """Return each alarm with its GPUs; those that differ in figures only are one."""
    found: dict[tuple[str, str], tuple[GpuAlarm, list[Gpu]]] = {}
    for gpu in gpus:
        for alarm in gpu.alarms:
            members = found.setdefault((alarm.kind, alarm.do), (alarm, []))[1]
            if gpu not in members:
                members.append(gpu)
    return sorted(found.values(), key=lambda pair: _SEVERITIES.index(pair[0].severity))


def _words(alarm: GpuAlarm, gpus: list[Gpu]) -> str:
    first, *others = gpus
    text = f"{gpu_words.name(first)}: {alarm.text}"
    if not others:
        return text
    numbers = ", ".join(str(other.sample.index) for other in others)
    return f"{text}; likewise GPU{'s' if others[1:] else ''} {numbers}"


def _sign(alarm: GpuAlarm, glyphs: Glyphs) -> Span:
    match alarm.severity:
        case "failure":
            return glyphs.bad
        case "warning":
            return Span("!", Tone.WARN)
        case _:
            return Span(" ", Tone.DIM)


def _told(sign: Span, text: str, do: str, width: int, glyphs: Glyphs) -> list[Row]:
    first, *more = wrap(text, width - 4)
    advice = f"{glyphs.pointer} {do}" if do else ""
    return [
        (Span(" "), sign, Span(f" {first}", sign.tone)),
        *((Span(f"   {line}", sign.tone),) for line in more),
        *((Span(f"   {line}"),) for line in wrap(advice, width - 4)),
    ]
