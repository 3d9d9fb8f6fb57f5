"""Evidence on disk: folders of launches, and raw logs from any machine."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from panel.domain.errors import NotFoundError
from panel.domain.events import Event
from panel.domain.verdict import Verdict
from panel.logs.merge import parse_times
from panel.triage.facts import Facts
from panel.triage.triage import Triage

_CHUNK = 1 << 20
_RANK = re.compile(r"rank[-_]?(\d+)")
_HINT = "give an evidence folder, or logs of one launch"
_events = msgspec.json.Decoder(Event)
_facts = msgspec.json.Decoder(Facts, strict=False)


def triage_folder(folder: Path, *, live: bool = False) -> Verdict:
    """Return the verdict on an evidence folder.

    `live`: it belongs to a launch of this machine that may still run, so that silence counts up to
    now. Raises NotFoundError where the folder holds no evidence.
    """
    logs = sorted(folder.glob("*.log"))
    facts = read_facts(folder / "launch.json")
    events = read_events(folder / "events.jsonl")
    if not logs and not events:
        raise NotFoundError(f"{folder} holds no log and no events", _HINT)
    triage = Triage(facts or Facts())
    for event in events:
        triage.see(event)
    for log in logs:
        feed(triage, log.stem, log)
    triage.end()
    now = time.time() - facts.t0_unix if live and facts and facts.t0_unix else None
    return triage.verdict(
        None if triage.gang.down else now, missing=_missing(triage, facts, events)
    )


def triage_files(paths: Sequence[Path]) -> Verdict:
    """Return the verdict on raw logs of one launch. Raises NotFoundError."""
    triage = Triage(Facts())
    for path in paths:
        if not path.is_file():
            raise NotFoundError(f"{path} is no file", _HINT)
        match = _RANK.search(path.name)
        feed(triage, f"rank-{match[1]}" if match else path.name, path)
    triage.end()
    verdict = triage.verdict(missing=_missing(triage, None, ()))
    # Whoever hands over a file has all of it.
    return msgspec.structs.replace(verdict, final=verdict.status != "running")


def read_facts(path: Path) -> Facts | None:
    """Return `launch.json`, None where it is missing or no JSON."""
    try:
        return _facts.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


def read_events(path: Path) -> list[Event]:
    """Return the events of a file without lines that are torn or of a kind not known here."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    events = []
    for line in lines:
        try:
            events.append(_events.decode(line))
        except msgspec.DecodeError:
            continue
    return events


def feed(triage: Triage, source: str, path: Path) -> None:
    """Let triage read a log, and the arrival times beside it."""
    times = path.with_suffix(".times")
    pairs = parse_times(times.read_bytes()) if times.is_file() else []
    triage.read(source, b"", pairs)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            triage.read(source, chunk)


def _missing(triage: Triage, facts: Facts | None, events: Sequence[Event]) -> list[str]:
    missing = []
    if facts is None:
        missing.append("flags and version of the launch (launch.json)")
    if not events:
        missing.append("exits and states of processes (events.jsonl)")
    untimed = [name for name, reader in triage.sources.items() if not reader.timed]
    if untimed:
        missing.append(f"arrival times of {', '.join(untimed)}")
    if not triage.gang.kernel:
        missing.append("kernel log")
    return missing
