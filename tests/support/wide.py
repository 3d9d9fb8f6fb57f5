"""The constructed capture of SGLang as one node of several would have written it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tests.support.engines import CONSTRUCTED

_RANK, _OTHER, _PIDS = 102, 103, 200
"""Pids of the capture's two ranks; where those of the new ones begin."""


def write_node(folder: Path, ranks: range, world: int) -> None:
    """Write the capture of a node that has these ranks. Only the one with rank 0 serves the API."""
    folder.mkdir()
    facts = json.loads((CONSTRUCTED / "sglang/launch.json").read_text())
    facts["world_size"] = world
    facts["argv"] = [str(world) if word == "2" else word for word in facts["argv"]]
    (folder / "launch.json").write_text(json.dumps(facts))
    events = (CONSTRUCTED / "sglang/events.jsonl").read_text().splitlines()
    changed = [each for line in events for each in _events(json.loads(line), ranks)]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in changed))
    if 0 in ranks:
        (folder / "metrics.prom").write_bytes((CONSTRUCTED / "sglang/metrics.prom").read_bytes())
    with (folder / "engine.log").open("wb") as log, (folder / "engine.times").open("w") as times:
        for t, line in _lines(CONSTRUCTED / "sglang"):
            for each in _said(line, ranks):
                times.write(json.dumps({"t": t, "offset": log.tell()}) + "\n")
                log.write(each)


def _events(event: dict[str, object], ranks: range) -> Iterator[dict[str, object]]:
    pid = event.get("pid")
    if event["kind"] == "health" and 0 not in ranks:
        return
    if pid == _RANK:
        for rank in ranks:
            own = {"pid": _PIDS + rank}
            if event["kind"] == "title":
                own |= {"title": f"sglang::scheduler_TP{rank}_EP{rank}", "rank": rank}
            yield event | own
    elif pid != _OTHER:
        yield event


def _lines(capture: Path) -> Iterator[tuple[float, bytes]]:
    data = (capture / "engine.log").read_bytes()
    pairs = [json.loads(line) for line in (capture / "engine.times").read_text().splitlines()]
    ends = [pair["offset"] for pair in pairs[1:]] + [len(data)]
    for pair, end in zip(pairs, ends, strict=True):
        for line in data[pair["offset"] : end].splitlines(keepends=True):
            yield pair["t"], line


def _said(line: bytes, ranks: range) -> Iterator[bytes]:
    if b" TP0 EP0]" in line:
        for rank in ranks:
            yield line.replace(b" TP0 EP0]", b" TP%d EP%d]" % (rank, rank))
    elif b" TP1 EP1]" not in line and (0 in ranks or b"SIGTERM" in line):
        yield line
