"""Gangs that live and do not move, and those that only look like it."""

from __future__ import annotations

import pytest

from panel.domain.events import Event, Kernel, Operator, Spawn, State
from panel.domain.verdict import Verdict
from panel.triage.facts import Facts
from panel.triage.scene import Beat
from panel.triage.triage import Triage, revise

WORLD = 4
CAPTURING = "[2026-03-04 10:00:00 TP0] Capture cuda graph begin. This can take minutes.\n"
MEETING = "[2026-03-04 10:00:00 TP0] Init torch distributed begin.\n"


def gang(*events: Event, log: str = "") -> Triage:
    triage = Triage(Facts(engine="sglang", world_size=WORLD))
    for rank in range(WORLD):
        triage.see(Spawn(t=0.1, source="engine", pid=10 + rank, rank=rank))
    for event in events:
        triage.see(event)
    triage.read("engine", log.encode(), [(1.0, 0)])
    return triage


def told(verdict: Verdict) -> tuple[str, str | None, object]:
    return verdict.status, verdict.kind, verdict.root_ranks


@pytest.mark.parametrize(
    ("log", "t", "expected"),
    [
        (MEETING, 60, ("running", None, ())),
        (MEETING, 200, ("hung", "nccl_p2p_hang", ())),
        (CAPTURING, 1200, ("running", None, ())),
        (CAPTURING, 2000, ("hung", "unknown_hang", ())),
    ],
)
def test_silence_is_measured_by_the_phase(log: str, t: float, expected: object) -> None:
    assert told(gang(log=log).verdict(t)) == expected


def test_capture_that_moves_is_no_hang() -> None:
    triage = gang(log=CAPTURING)
    for minute in range(1, 90):
        position = triage.sources["engine"].size
        bar = f"Capturing batches: {minute}/90\n"
        triage.read("engine", bar.encode(), [(minute * 60.0, position)])
        assert triage.verdict(minute * 60.0 + 50).status == "running"


def test_stopped_rank_is_named_after_a_while_and_forgotten_when_it_goes_on() -> None:
    triage = gang(State(t=10, pid=12, state="T"))
    assert triage.verdict(20.0).status == "running"
    assert "rank 2 is stopped" in triage.verdict(20.0).headline
    assert told(triage.verdict(50.0)) == ("hung", "rank_stopped", (2,))
    triage.see(State(t=60, pid=12, state="R"))
    assert triage.verdict(61.0).status == "running"


def test_rank_whose_heartbeat_stands_still_behind_the_others() -> None:
    beats = [Beat(rank, "serving", 99 if rank == 3 else 100, 25.0) for rank in range(WORLD)]
    assert told(gang().verdict(90.0, beats)) == ("hung", "unknown_hang", (3,))
    fresh = [beat._replace(age=0.1) for beat in beats]
    assert gang().verdict(90.0, fresh).status == "running"


def test_heartbeats_that_all_stand_at_one_step_name_nobody() -> None:
    beats = [Beat(rank, "serving", 100, 25.0) for rank in range(WORLD)]
    assert told(gang().verdict(90.0, beats)) == ("hung", "unknown_hang", ())


def booting(late: float, *, waiting: bool = True) -> list[Beat]:
    others = [Beat(rank, "workspace", 0, 100.0, 3, waiting) for rank in range(3)]
    return [*others, Beat(3, "weights", 0, late, 2, False)]


def test_a_start_in_which_all_wait_for_one_names_it_once_its_phase_should_be_over() -> None:
    assert gang(log=CAPTURING).verdict(90.0, booting(50.0)).status == "running"
    assert gang(log=CAPTURING).verdict(90.0, booting(80.0, waiting=False)).status == "running"
    found = gang(log=CAPTURING).verdict(90.0, booting(80.0))
    assert told(found) == ("hung", "unknown_hang", (3,))
    assert (found.phase, found.t_first, found.confidence) == ("weights", 10.0, "medium")
    assert found.headline == "rank 3 lets the others wait, without a move for 80 s in weights"


def test_loading_for_long_needs_no_heartbeat() -> None:
    beats = [Beat(rank, "weights", 0, 300.0) for rank in range(WORLD)]
    assert gang().verdict(400.0, beats).status == "running"


def test_whoever_is_being_stopped_does_not_hang() -> None:
    triage = gang(State(t=10, pid=12, state="T"), Operator(t=20, action="down"), log=MEETING)
    assert told(triage.verdict(900.0)) == ("stopped", "operator_stop", ())


def test_kernel_line_that_came_with_its_rank() -> None:
    text = "NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus."
    found = gang(Kernel(t=10, text="usb 1-1: new device"), Kernel(t=11, text=text, rank=3))
    assert told(found.verdict(12.0)) == ("crashed", "xid_79", (3,))


def test_only_what_is_new_makes_a_revision() -> None:
    triage = gang(State(t=10, pid=12, state="T"))
    first = triage.verdict(50.0)
    assert revise(None, first) == first
    assert revise(first, triage.verdict(51.0)) is None
    triage.see(State(t=60, pid=12, state="R"))
    second = revise(first, triage.verdict(61.0))
    assert second is not None
    assert second.revision == 1


def test_an_operator_who_stops_a_hung_gang_does_not_hide_who_held_it_up() -> None:
    stopped = State(t=5.0, pid=12, state="T")
    late = gang(stopped, Operator(t=60.0, action="down_now")).verdict(61.0)
    assert told(late) == ("hung", "rank_stopped", (2,))
    soon = gang(stopped, Operator(t=6.0, action="down")).verdict(90.0)
    assert told(soon) == ("stopped", "operator_stop", ())


def test_rank_that_is_stopped_while_nothing_moves_is_named_at_once() -> None:
    triage = gang(State(t=10, pid=12, state="T"))
    beats = [Beat(rank, "serving", 100, 21.0) for rank in range(WORLD)]
    assert told(triage.verdict(31.0, beats)) == ("hung", "rank_stopped", (2,))
    moving = [Beat(rank, "serving", 100, 1.0) for rank in range(WORLD)]
    assert triage.verdict(31.0, moving).status == "running"


def test_phase_of_the_gang_is_that_of_the_log_that_spoke_last() -> None:
    triage = gang(log=MEETING)
    early = "[2026-03-04 09:59:00.000 spawn] INFO torch is imported\n"
    triage.read("spawner", early.encode(), [(0.5, 0)])
    assert triage.verdict(2.0).headline == "nothing has failed; last phase seen: dist_init"
