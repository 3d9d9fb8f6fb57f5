"""A bug report in Markdown for the engine's developers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from panel.domain.plan import Change
from panel.domain.redact import redact, redact_values
from panel.domain.snapshot import LaunchView
from panel.domain.verdict import Verdict
from panel.widgets.findings import Findings
from panel.widgets.triage_lanes import Lanes, lanes_of

_LOG_LINES = 40


def report(
    launch: LaunchView, verdict: Verdict, findings: Findings, hidden: Mapping[str, str]
) -> str:
    """Return the report, secrets masked.

    `hidden`: what is nobody's business but this node's (the home folder, its name), and what
    stands in its place.
    """
    sections = [
        f"# {launch.engine} {launch.version}: {verdict.headline}\n",
        _section("Verdict", _verdict(launch, verdict)),
        _section("Versions", _pairs({launch.engine: launch.version} | _versions(findings))),
        _section("Topology", _topology(launch)),
        _section("Flags", _block(_flags(launch.flags))),
        _section("Environment", _block(_settings(findings))),
        _section("Timeline", _timeline(lanes_of(launch, verdict, findings.tails))),
        _section("Evidence", _block(_evidence(verdict))),
        _section("Traceback", _block(_trace(findings))),
        _section("Log", _block(_log(findings))),
        _section("Since the last good launch", _differences(findings)),
        _section("Advice", _advice(verdict)),
        _section("Notes", (f"- {note.text}" for note in findings.notes)),
        _section("Looks like", _pairs({one.kind: one.sign for one in verdict.related})),
    ]
    text = redact("\n".join(section for section in sections if section))
    for word, stand_in in hidden.items():
        if len(word) > 1:
            text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", stand_in, text)
    return text


def _section(title: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return f"## {title}\n\n{body}\n" if body else ""


def _block(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines as code; the fence is longer than any that stands in them."""
    body = list(lines)
    if body:
        longest = max((len(run) for line in body for run in re.findall("`+", line)), default=0)
        fence = "`" * max(3, longest + 1)
        yield f"{fence}text"
        yield from body
        yield fence


def _verdict(launch: LaunchView, verdict: Verdict) -> Iterator[str]:
    if verdict.cause:
        yield f"- cause: {verdict.cause}"
    kind = ", ".join(word for word in (verdict.family, verdict.kind) if word)
    yield f"- {verdict.status}{f': {kind}' if kind else ''}, confidence {verdict.confidence}"
    if verdict.phase:
        yield f"- phase: {verdict.phase}"
    began = datetime.fromtimestamp(launch.t0_unix, UTC)
    when = "" if verdict.t_first is None else f", first symptom {verdict.t_first:.2f} s later"
    yield f"- launched {began:%Y-%m-%d %H:%M:%S} UTC{when}"
    if verdict.missing:
        yield f"- not available: {', '.join(verdict.missing)}"


def _versions(findings: Findings) -> dict[str, str]:
    return findings.record.versions if findings.record else {}


def _pairs(values: Mapping[str, str]) -> Iterator[str]:
    return (f"- {name}: {text}" for name, text in values.items() if text)


def _topology(launch: LaunchView) -> Iterator[str]:
    yield f"- {launch.world_size} ranks: {' '.join(launch.chips)}"


def _flags(flags: Mapping[str, str]) -> Iterator[str]:
    return (f"--{name}={text}" for name, text in redact_values(dict(flags)).items())


def _settings(findings: Findings) -> Iterator[str]:
    env = findings.record.env if findings.record else {}
    return (f"{name}={text}" for name, text in redact_values(env).items())


def _timeline(lanes: Lanes) -> Iterator[str]:
    yield "| who | after the first symptom | ended | what |"
    yield "|---|---|---|---|"
    for lane in lanes.lanes:
        who = f"rank {lane.name}" if lane.name.isdecimal() else lane.name
        first = "" if lane.symptom is None else f"{lane.symptom - lanes.begin:+.2f} s"
        end = "" if lane.end is None else f"{lane.end - lanes.begin:+.2f} s"
        words = ": ".join(word for word in (lane.label, lane.words) if word)
        yield f"| {who} | {first} | {end} | {words.replace('|', chr(92) + '|')} |"


def _evidence(verdict: Verdict) -> Iterator[str]:
    return (f"{line.source}:{line.line}  {line.text}" for line in verdict.evidence)


def _trace(findings: Findings) -> Iterator[str]:
    return (line.text for line in (findings.trace.lines if findings.trace else ()))


def _log(findings: Findings) -> Iterator[str]:
    told = {line.offset for line in findings.trace.lines} if findings.trace else set()
    rest = [record.line for record in findings.around if record.offset not in told]
    return iter(rest[-_LOG_LINES:])


def _differences(findings: Findings) -> Iterator[str]:
    if findings.good is None:
        return
    if not findings.differences:
        yield "Same flags, versions and environment."
    for change in findings.differences:
        yield f"- {_shown(change)}"


def _shown(change: Change) -> str:
    before, after = (
        redact_values({change.name: text or "not set"})[change.name]
        for text in (change.before, change.after)
    )
    return f"`{change.name}`: `{before}` → `{after}`"


def _advice(verdict: Verdict) -> Iterator[str]:
    for advice in verdict.advice:
        what = " ".join(
            f"`--{name}={text}`" if text else f"without `--{name}`"
            for name, text in advice.change.items()
        )
        said = dict.fromkeys(text for text in (what, advice.confirm, advice.why) if text)
        yield f"- {'confirm' if advice.confirm else 'fix'}: {'; '.join(said)}"
