"""The node at a glance as rows: header, figures, verdict, or what could be launched."""

from __future__ import annotations

from collections import Counter

from panel.domain.flags import Profile
from panel.domain.phases import Phase
from panel.domain.plan import Plan
from panel.domain.snapshot import Host, LaunchView, ProcessView, Snapshot
from panel.domain.states import LaunchState, ProcessState
from panel.widgets import speculation_rows
from panel.widgets.advice_words import advice_words, kind_of
from panel.widgets.glyphs import Glyphs
from panel.widgets.kept_words import kept_words
from panel.widgets.spans import BLANK, Row, Span, Tone, cells, clip, wrap
from panel.widgets.words import ago, clock, count, size, span_of

_HISTORY = 12
_FEWER = 8
"""Where drafts have something to say, too."""
_ORDER = {phase.value: index for index, phase in enumerate(Phase)}


def _named_host(snapshot: Snapshot, glyphs: Glyphs) -> Span:
    return Span(f" {clip(snapshot.host.name, 16, glyphs.more)}  ", Tone.BRIGHT)


def lost(snapshot: Snapshot, goes_on: bool, width: int, glyphs: Glyphs) -> Row:
    """Return the header while no supervisor answers; `goes_on`: the gang is there all the same."""
    name = _named_host(snapshot, glyphs)
    then = "mends it; the engine goes on" if goes_on else "starts one"
    told = f"{glyphs.states[ProcessState.STALE]} no supervisor answers: q, then moepanel, {then}"
    return (name, Span(clip(told, width - cells([name]), glyphs.more), Tone.WARN))


def past(snapshot: Snapshot, age: float) -> Row:
    """Return the second line while no supervisor answers: how old is what is shown."""
    launch = snapshot.launch
    what = f"#{launch.id} was {launch.state.value}" if launch else "nothing had been launched"
    return (Span(f" {what} when it answered last, {ago(max(age, 0.0))}", Tone.WARN),)


def header(snapshot: Snapshot, width: int, glyphs: Glyphs) -> Row:
    """Return the line that names the node, the launch and its state."""
    name = _named_host(snapshot, glyphs)
    launch = snapshot.launch
    if launch is None:
        return (name, Span("nothing launched yet", Tone.DIM))
    row = (
        name,
        Span(f"#{launch.id} ", Tone.DIM),
        Span(launch.request.profile),
        Span(f"/{launch.engine}  ", Tone.DIM),
        glyphs.launch(launch.state),
        Span(" "),
        Span(launch.state.value, glyphs.launch(launch.state).tone),
        Span(f" {_since(launch)}  "),
    )
    return (*row, Span(_chips(launch.chips, width - cells(row), glyphs), Tone.DIM))


def _chips(chips: tuple[str, ...], room: int, glyphs: Glyphs) -> str:
    return clip(glyphs.plain(" ".join(chips)), room, glyphs.more)


def _since(launch: LaunchView) -> str:
    match launch.state:
        case LaunchState.LAUNCHING:
            usual = f" of about {span_of(launch.usual_ready_s)}" if launch.usual_ready_s else ""
            return span_of(launch.t) + usual
        case LaunchState.SERVING | LaunchState.STOPPING | LaunchState.FAILING:
            return clock(launch.t)
        case _:
            return f"after {span_of(launch.t)}"


def figures(snapshot: Snapshot, width: int, glyphs: Glyphs) -> Row:
    """Return the second line: speed while serving, progress while launching, else the host."""
    launch = snapshot.launch
    if launch is None or not launch.state.live:
        return _host(snapshot.host, width, glyphs)
    if launch.state is LaunchState.LAUNCHING:
        return _progress(launch)
    metrics = launch.metrics
    if metrics is None:
        return (Span(" no figures from the engine yet", Tone.DIM),)
    drafting = metrics.speculation is not None
    full = f"{metrics.kv_used / metrics.kv_total:.0%}" if metrics.kv_total else "-"
    row = [
        Span(f"{metrics.tok_s:>5.0f}", Tone.BRIGHT),
        Span(" tok/s ", Tone.DIM),
        Span(glyphs.bars(metrics.history, _FEWER if drafting else _HISTORY), Tone.GOOD),
        *_named("run", f"{metrics.running:<3}"),
        *_named("wait", f"{metrics.waiting:<3}", Tone.WARN if metrics.waiting else Tone.PLAIN),
        *_named("kv", f"{full:<4}"),
    ]
    ttft = f"{metrics.ttft_ms:.0f}ms" if metrics.ttft_ms is not None else "-"
    row += [*_named("ttft", f"{ttft:<6}"), *speculation_rows.verdict(metrics)]
    if width >= 100 and metrics.kv_total:
        row += _named("cache", f"{count(metrics.kv_used)}/{count(metrics.kv_total)} tokens")
    return tuple(row)


def _named(name: str, value: str, tone: Tone = Tone.PLAIN) -> tuple[Span, Span]:
    return Span(f" {name} ", Tone.DIM), Span(value, tone)


def _host(host: Host, width: int, glyphs: Glyphs) -> Row:
    row = (
        Span(f" {host.cpus}"),
        Span(" cpus ", Tone.DIM),
        *_named("load", f"{host.load:<5.1f}"),
        *_named("memory", f"{size(host.memory_available):>5} of {size(host.memory_total)} free"),
    )
    note = clip(host.gpu_note, width - cells(row) - 3, glyphs.more)
    return (*row, Span(f"  {note}", Tone.DIM))


def _progress(launch: LaunchView) -> Row:
    phases = Counter(rank.phase for rank in launch.ranks)
    if not phases:
        return (Span(" starting", Tone.DIM),)
    row: list[Span] = [Span(" ")]
    for phase in sorted(phases, key=lambda name: _ORDER.get(name, -1)):
        tone = Tone.BRIGHT if phase == launch.phase else Tone.PLAIN
        row += [Span(f"{phases[phase]} ", Tone.DIM), Span(f"{phase}  ", tone)]
    return tuple(row)


def verdict(launch: LaunchView, width: int, glyphs: Glyphs) -> list[Row]:
    """Return what became of a launch that failed, hangs or fails requests, and what to do.

    Nothing for others.
    """
    concluded = launch.verdict
    fails = launch.state.failed or launch.state is LaunchState.FAILING
    if not fails and not (concluded and concluded.troubled):
        return []
    bad = glyphs.process(ProcessState.FAILED if fails else ProcessState.STALE)
    first = first_failed(launch)
    headline = concluded.headline if concluded else (first and f"{first.source} failed first")
    lines = wrap(headline or launch.note or "it ended; why is not known", width - 4)
    rows: list[Row] = [(bad, Span(f" {lines[0]}", bad.tone))]
    rows += [(Span(f"  {line}", bad.tone),) for line in lines[1:3]]
    if first is not None and first.exit is not None:
        words = f"{first.source} {first.exit.words}, {span_of(first.exit.t)} after the launch"
        rows.append((Span(f"  {clip(words, width - 4, glyphs.more)}"),))
    for advice in concluded.advice[:2] if concluded else ():
        text = f"{kind_of(advice)}: {advice_words(advice)}"
        rows.append((Span(f"  {glyphs.pointer} {clip(text, width - 6, glyphs.more)}"),))
    return [(Span(" "), *row) for row in rows]


def still_held(launch: LaunchView, width: int, glyphs: Glyphs) -> list[Row]:
    """Return what a launch that ended still holds of the GPUs."""
    return [
        (Span(" "), Span("!", Tone.WARN), Span(f" {clip(text, width - 4, glyphs.more)}", Tone.WARN))
        for text in launch.held
    ]


def kept(snapshot: Snapshot, width: int, glyphs: Glyphs) -> list[Row]:
    """Return what stays in memory from launch to launch, and who holds it."""
    if snapshot.kept is None:
        return []
    text = clip(kept_words(snapshot.kept), width - 2, glyphs.more)
    return [(Span(f" {text}", Tone.DIM),)]


def first_failed(launch: LaunchView) -> ProcessView | None:
    """Return the process to blame: the verdict's, else the one that died first."""
    roots = launch.verdict.root_ranks if launch.verdict else ()
    failed = [p for p in launch.processes if p.state is ProcessState.FAILED and p.exit is not None]
    blamed = [p for p in failed if roots != "all" and p.rank in roots]
    return min(blamed or failed, key=lambda p: p.exit.t if p.exit else 0.0, default=None)


def empty(
    plan: Plan | None, profiles: tuple[Profile, ...], trouble: str, width: int, glyphs: Glyphs
) -> list[Row]:
    """Return what the node shows before the first launch: what would run, and the key for it."""
    if trouble:
        return [BLANK, (Span("   "), glyphs.bad, Span(f" {trouble}", Tone.BAD))]
    if plan is None:
        return [BLANK, (Span("   looking at what can be launched here", Tone.DIM),)]
    profile = plan.request.profile
    title = (
        Span(f"   {profile}", Tone.BRIGHT),
        Span(f"  {plan.engine} {plan.version}   ", Tone.DIM),
        Span(_chips(plan.chips, width, glyphs)),
    )
    note = next((known.note for known in profiles if known.name == profile), "")
    rows: list[Row] = [BLANK, title, (Span(f"   {note}", Tone.DIM),), BLANK]
    for problem in plan.problems:
        if problem.severity == "note":
            continue
        bad = problem.severity == "refusal"
        sign = glyphs.bad if bad else Span("!", Tone.WARN)
        first, *rest = wrap(problem.text, width - 7)
        rows.append((Span("   "), sign, Span(f" {first}", sign.tone)))
        rows += [(Span(f"     {line}", sign.tone),) for line in rest]
    if plan.refused:
        return [
            *rows,
            BLANK,
            (
                Span("   press ", Tone.DIM),
                Span("c", Tone.KEY),
                Span(" to choose another profile or other flags", Tone.DIM),
            ),
        ]
    return [
        *rows,
        (Span("   press ", Tone.DIM), Span("r", Tone.KEY), Span(f" to launch {profile}")),
        (Span("         "), Span("c", Tone.KEY), Span(" to change its flags first", Tone.DIM)),
    ]
