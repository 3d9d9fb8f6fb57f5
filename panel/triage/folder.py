"""Evidence on disk: folders of launches, and raw logs from any machine."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from panel.domain.errors import NotFoundError, PanelError
from panel.domain.events import Event
from panel.domain.verdict import Verdict
from panel.logs.files import open_log
from panel.logs.merge import parse_times
from panel.probes.host import read_kernel_log
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
    logs = _logs(folder)
    facts = read_facts(folder / "launch.json")
    events = read_events(folder / "events.jsonl")
    if not logs and not events:
        raise NotFoundError(f"{folder} holds no log and no events", _HINT)
    triage = Triage(facts or Facts())
    for event in events:
        triage.see(event)
    unread = []
    for source, log in logs.items():
        try:
            feed(triage, source, log)
        except PanelError as error:
            unread.append(str(error))
    triage.end()
    if facts is None and not events:
        _demand(triage, unread[0] if unread else str(folder))
    now = time.time() - facts.t0_unix if live and facts and facts.t0_unix else None
    verdict = triage.verdict(
        None if triage.gang.down else now, missing=_missing(triage, facts, events, live) + unread
    )
    return _with_kept(verdict, folder / "verdict.json")


def triage_files(paths: Sequence[Path]) -> Verdict:
    """Return the verdict on raw logs of one launch, plain or gzip.

    Raises UsageError for what is no text, NotFoundError where no line in it is of an engine.
    """
    triage = Triage(Facts())
    for path in paths:
        if not path.is_file():
            raise NotFoundError(f"{path} is no file", _HINT)
        match = _RANK.search(path.name)
        feed(triage, f"rank-{match[1]}" if match else path.name, path)
    triage.end()
    _demand(triage, ", ".join(map(str, paths)))
    verdict = triage.verdict(missing=_missing(triage, None, ()))
    # Whoever hands over a file has all of it.
    return msgspec.structs.replace(verdict, final=verdict.status != "running")


def _with_kept(now: Verdict, path: Path) -> Verdict:
    """Return the verdict with what its supervisor saw and no file tells: beats, stacks, the steps
    of looking at a hang."""
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Verdict)
    except (OSError, msgspec.DecodeError):
        return now
    if now.status == "stopped":
        return msgspec.structs.replace(now, note=kept.note)
    return kept if kept.status == "hung" and now.status in ("running", "hung") else now


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
    """Let triage read a log, plain or gzip, and the arrival times beside it."""
    times = path.with_name(f"{_stem(path)}.times")
    pairs = parse_times(times.read_bytes()) if times.is_file() else []
    log = open_log(path)
    try:
        triage.read(source, b"", pairs)
        offset = 0
        while chunk := log.read(offset, _CHUNK):
            triage.read(source, chunk)
            offset += len(chunk)
    finally:
        log.close()


def _logs(folder: Path) -> dict[str, Path]:
    """Return the logs by source; of one that is there both plain and packed, the plain one."""
    found = {_stem(path): path for path in folder.glob("*.log.gz")}
    found |= {_stem(path): path for path in folder.glob("*.log")}
    return dict(sorted(found.items()))


def _stem(path: Path) -> str:
    return path.with_name(path.name.removesuffix(".gz")).stem


def _demand(triage: Triage, what: str) -> None:
    """See that something of an engine was read: of anything else nothing can be concluded."""
    if not any(reader.known for reader in triage.sources.values()):
        raise NotFoundError(f"no engine log in this: {what}", _HINT)


def _missing(
    triage: Triage, facts: Facts | None, events: Sequence[Event], live: bool = False
) -> list[str]:
    missing = []
    if facts is None:
        missing.append("flags and version of the launch (launch.json)")
    if not events:
        missing.append("exits and states of processes (events.jsonl)")
    untimed = [name for name, reader in triage.sources.items() if not reader.timed]
    if untimed:
        missing.append(f"arrival times of {', '.join(untimed)}")
    # Of a launch of this machine the supervisor has noted what the kernel said, if it could read.
    if not triage.gang.kernel and not (live and events and not read_kernel_log()):
        missing.append("kernel log")
    return missing
