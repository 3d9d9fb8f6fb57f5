"""What the node screen says below its table: a suspected hang, the worst of the GPUs."""

from __future__ import annotations

from panel.domain.gpu import Gpu
from panel.domain.hang import Suspicion
from panel.domain.snapshot import Snapshot
from panel.domain.states import ProcessState
from panel.widgets import gpu_words
from panel.widgets.glyphs import Glyphs
from panel.widgets.spans import Row, Span, Tone, wrap
from panel.widgets.words import clock

_LINES = 2
_NEXT = (("d", "diagnoses"), ("s", "takes stacks"), ("x", "stops"))


def notices(snapshot: Snapshot, width: int, glyphs: Glyphs) -> list[Row]:
    """Return the rows; none while nothing is out of order."""
    launch = snapshot.launch
    rows: list[Row] = []
    if launch is not None and launch.suspicion is not None:
        rows += _suspicion(launch.suspicion, launch.world_size, width, glyphs)
    return [*rows, *_gpus(snapshot.gpus, width)]


def hang_words(suspicion: Suspicion, world_size: int) -> str:
    """Return which ranks stand still, and since when."""
    ranks = suspicion.ranks
    which = f" ({', '.join(map(str, ranks))})" if 1 < len(ranks) < world_size else ""
    return f"a hang? {suspicion.text}{which}, since {clock(suspicion.since)}"


def _suspicion(found: Suspicion, world_size: int, width: int, glyphs: Glyphs) -> list[Row]:
    sign = glyphs.process(ProcessState.STALE)
    first, *more = wrap(hang_words(found, world_size), width - 4)[:_LINES]
    keys: list[Span] = [Span("   ")]
    for key, does in _NEXT:
        keys += [Span(key, Tone.KEY), Span(f" {does}  ", Tone.DIM)]
    return [
        (Span(" "), sign, Span(f" {first}", sign.tone)),
        *((Span(f"   {line}", sign.tone),) for line in more),
        tuple(keys),
    ]


def _gpus(gpus: tuple[Gpu, ...], width: int) -> list[Row]:
    """Return what ails the GPU that is worst in full; the table has room for its beginning only."""
    ailing = sorted((gpu for gpu in gpus if gpu_words.in_words(gpu, 0)), key=_order)
    if not ailing:
        return []
    alarm = gpu_words.worst(ailing[0])
    words = f"{alarm.text}: {alarm.do}" if alarm else gpu_words.trouble(ailing[0])
    tone = Tone.BAD if alarm and alarm.severity == "failure" else Tone.WARN
    count = len(ailing) - 1
    others = f" ({count} more GPU{'s' if count > 1 else ''}: g)" if count else ""
    lines = wrap(f"{gpu_words.name(ailing[0])}: {words}{others}", width - 4)
    first, *more = lines[:_LINES]
    return [
        (Span(" "), Span("!" if alarm else "?", tone), Span(f" {first}", tone)),
        *((Span(f"   {line}", tone),) for line in more),
    ]


def _order(gpu: Gpu) -> int:
    alarm = gpu_words.worst(gpu)
    return 2 if alarm is None else int(alarm.severity != "failure")
