"""What only a supervisor saw of a hang, kept in `verdict.json`, and triage of the folder later."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from panel.domain.hang import Suspicion
from panel.domain.verdict import Evidence, Verdict
from panel.triage.folder import triage_folder
from panel.triage.triage import hung_before

SPAWN = '{"t": 1, "kind": "spawn", "source": "rank-2", "pid": 5, "rank": 2}\n'
DOWN = (
    '{"t": 50, "kind": "operator", "action": "down"}\n'
    '{"t": 51, "kind": "exit", "pid": 5, "code": -15}\n'
    '{"t": 52, "kind": "gang", "state": "down"}\n'
)
HUNG = Verdict(
    status="hung",
    headline="rank 2 made no step for 25 s while the others wait in serving",
    kind="unknown_hang",
    root_ranks=(2,),
    t=40.0,
    evidence=(Evidence(source="hang/1-look.json", offset=0, line=1, text="rank 2 never came"),),
)


def keep(folder: Path, events: str, verdict: Verdict) -> Path:
    (folder / "events.jsonl").write_text(events)
    (folder / "rank-2.log").write_text("[2026-01-31 12:00:00.123 TP2 serving] INFO serving\n")
    (folder / "verdict.json").write_bytes(msgspec.json.encode(verdict))
    return folder


def test_a_hang_that_only_heartbeats_show_is_the_verdict_offline_too(tmp_path: Path) -> None:
    assert triage_folder(keep(tmp_path, SPAWN, HUNG)) == HUNG


def test_what_the_logs_show_beats_an_older_verdict(tmp_path: Path) -> None:
    died = SPAWN + '{"t": 45, "kind": "exit", "pid": 5, "code": -11}\n'
    assert triage_folder(keep(tmp_path, died, HUNG)).kind == "sigsegv"


def test_a_verdict_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    (keep(tmp_path, SPAWN, HUNG) / "verdict.json").write_text('{"status": "hu')
    assert triage_folder(tmp_path).status == "running"


def test_a_stopped_launch_keeps_that_it_hung(tmp_path: Path) -> None:
    note = hung_before(HUNG, None)
    kept = Verdict(status="stopped", headline="stopped by the operator", note=note)
    found = triage_folder(keep(tmp_path, SPAWN + DOWN, kept))
    assert found.told.startswith("stopped by the operator; it hung before: rank 2 made no step")


@pytest.mark.parametrize(
    ("before", "suspicion", "note"),
    [
        (None, None, ""),
        (Verdict(status="running", headline="nothing has failed"), None, ""),
        (HUNG, None, f"it hung before: {HUNG.headline}"),
        (Verdict(status="stopped", headline="stopped", note="it hung"), None, "it hung"),
        (
            None,
            Suspicion(since=3.0, ranks=(2,), text="rank 2 without a beat"),
            "it seemed to hang before: rank 2 without a beat",
        ),
    ],
)
def test_note_of_a_hang(before: Verdict | None, suspicion: Suspicion | None, note: str) -> None:
    assert hung_before(before, suspicion) == note
