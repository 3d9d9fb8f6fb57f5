"""How often triage is right: python tests/triage/score.py FOLDER [--min SHARE] [--prefixes].

FOLDER holds cases (`case/expect.json` beside the evidence) or descriptions of cases (`*.toml`),
which are built first. `expect.json`: `status` and `kinds` (any is right), `root_ranks` ("all" or a
list; `root_alternatives` are right too), `must_not_roots`, `must_not_status`, `must_not_text`
(patterns that may stand in neither headline nor advice), `advice_should` (one pattern at least
stands in the advice). With --prefixes each case is also judged at the moments on its way: nothing
may be claimed that the end does not bear out. Ends with 1 where a share is below the minimum.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from panel.domain.verdict import Verdict
from panel.logs.merge import parse_times
from panel.triage.facts import Facts
from panel.triage.folder import read_events, read_facts, triage_folder
from panel.triage.triage import Triage

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.triage.build import build

FAILED = ("crashed", "hung", "host_down", "refused")
MOMENTS = 150


class Result(NamedTuple):
    """What was right of one case."""

    name: str
    status: bool
    root: bool
    kind: bool
    advice: bool
    allowed: bool
    """Nothing forbidden was said."""
    told: str


def roots_of(verdict: Verdict) -> str | list[int]:
    """Return root ranks as `expect.json` writes them."""
    return "all" if verdict.root_ranks == "all" else list(verdict.root_ranks)


def allowed_roots(expect: dict[str, Any]) -> list[Any]:
    """Return all root sets that are right."""
    return [expect["root_ranks"], *expect.get("root_alternatives", [])]


def forbidden(verdict: Verdict, expect: dict[str, Any]) -> str:
    """Return what a verdict claims although it may not; empty where it does not."""
    roots = roots_of(verdict)
    bad = set(expect.get("must_not_roots", ()))
    if isinstance(roots, list) and bad & set(roots):
        return f"names rank {sorted(bad & set(roots))}"
    if verdict.status in expect.get("must_not_status", ()):
        return f"says {verdict.status}"
    text = verdict.headline + " " + msgspec.json.encode(verdict.advice).decode()
    hits = [each for each in expect.get("must_not_text", ()) if re.search(each, text, re.I)]
    return f"says {hits[0]!r}" if hits else ""


def judge(case: Path, prefixes: bool) -> Result:
    """Return how triage does on one case."""
    expect = json.loads((case / "expect.json").read_text())
    folder = case / expect.get("input", ".")
    verdict = triage_folder(folder)
    advice = msgspec.json.encode(verdict.advice).decode()
    said = forbidden(verdict, expect)
    if prefixes and not said:
        said = next(filter(None, (too_soon(each, expect) for each in moments(folder))), "")
    told = f"{verdict.status} {verdict.kind} {roots_of(verdict)} {said or verdict.headline}"
    return Result(
        case.name,
        verdict.status in expect["status"],
        roots_of(verdict) in allowed_roots(expect),
        verdict.kind in (expect["kinds"] or [None]),
        not expect.get("advice_should")
        or any(re.search(each, advice, re.I) for each in expect["advice_should"]),
        not said,
        told,
    )


def too_soon(verdict: Verdict, expect: dict[str, Any]) -> str:
    """Return what a verdict on the way claims that the end does not bear out."""
    told = forbidden(verdict, expect)
    roots = roots_of(verdict)
    named = [each for each in allowed_roots(expect) if each]
    if not told and roots and roots not in named and "all" not in named:
        wrong = (
            set(roots) - {rank for each in named for rank in each} if roots != "all" else {"all"}
        )
        told = f"names {wrong}" if wrong else ""
    if not told and verdict.status in FAILED and not set(FAILED) & set(expect["status"]):
        told = f"says {verdict.status}"
    return f"at {verdict.t:.2f} s {told}" if told else ""


def moments(folder: Path) -> Iterator[Verdict]:
    """Yield the verdicts along the time line of a folder."""
    triage = Triage(read_facts(folder / "launch.json") or Facts())
    events = read_events(folder / "events.jsonl")
    logs = {path.stem: path.read_bytes() for path in folder.glob("*.log")}
    pairs = {
        source: parse_times((folder / f"{source}.times").read_bytes())
        for source in logs
        if (folder / f"{source}.times").is_file()
    }
    if not pairs:
        return
    times = {event.t for event in events} | {t for each in pairs.values() for t, _ in each}
    step = max(1, len(times) // MOMENTS)
    stops = sorted({*sorted(times)[::step], *(event.t for event in events if _tells(event))})
    read = dict.fromkeys(logs, 0)
    seen = 0
    for now in stops:
        while seen < len(events) and events[seen].t <= now:
            triage.see(events[seen])
            seen += 1
        for source, known in pairs.items():
            later = next((offset for t, offset in known if t > now), len(logs[source]))
            if later > read[source]:
                new = [(t, offset) for t, offset in known if t <= now]
                triage.read(source, logs[source][read[source] : later], new)
                read[source] = later
        yield triage.verdict(now)


def _tells(event: object) -> bool:
    return type(event).__name__ not in ("Gpu", "Health")


def score(folder: Path, prefixes: bool = False) -> list[Result]:
    """Return the results of all cases below a folder."""
    with tempfile.TemporaryDirectory() as built:
        build(folder, Path(built))
        found = [*folder.glob("*/expect.json"), *Path(built).glob("*/expect.json")]
        return [judge(path.parent, prefixes) for path in sorted(found)]


def main() -> int:
    """Print the shares; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--min", type=float, default=0.0, dest="least")
    parser.add_argument("--prefixes", action="store_true")
    options = parser.parse_args()
    results = score(options.folder, options.prefixes)
    if not results:
        print(f"no case in {options.folder}", file=sys.stderr)
        return 2
    names = ("status", "root", "kind", "advice", "allowed")
    for result in results:
        wrong = [name for name in names if not getattr(result, name)]
        if wrong:
            print(f"{result.name}: wrong {', '.join(wrong)}: {result.told}")
    shares = {name: sum(getattr(each, name) for each in results) / len(results) for name in names}
    print(f"{len(results)} cases")
    for name, share in shares.items():
        print(f"{'nothing forbidden' if name == 'allowed' else f'right {name}':<18} {share:7.1%}")
    return int(min(shares.values()) < options.least)


if __name__ == "__main__":
    sys.exit(main())
