"""The gang out of its events."""

from __future__ import annotations

import pytest

from panel.domain.events import Event, Exit, Gpu, Operator, Signal, Spawn, State, Title
from panel.triage.gang import GangState, normal_bus


def seen(*events: Event) -> GangState:
    gang = GangState()
    for event in events:
        gang.see(event)
    return gang


def children(parent: int, pids: range) -> list[Event]:
    return [Spawn(t=1, source="engine", pid=pid, ppid=parent, command="spawn_main") for pid in pids]


def test_ranks_without_titles_are_those_that_their_parent_started_in_order() -> None:
    tracker = Spawn(t=1, source="engine", pid=9, ppid=1, command="resource_tracker main")
    gang = seen(Spawn(t=0, source="engine", pid=1), tracker, *children(1, range(10, 15)))
    gang.settle_ranks(4, {})
    assert [gang.rank_of_pid(pid) for pid in range(9, 15)] == [None, 0, 1, 2, 3, None]


def test_known_ranks_are_not_overruled_by_order() -> None:
    gang = seen(*children(1, range(10, 14)), Title(t=2, pid=10, title="W_TP3", rank=3))
    gang.settle_ranks(4, {11: 2})
    assert [gang.rank_of_pid(pid) for pid in range(10, 14)] == [3, 2, None, None]


def test_what_was_asked_for_accuses_nobody() -> None:
    gang = seen(
        *children(1, range(10, 14)),
        Signal(t=2, pid=10, sig=15, by="keeper"),
        Signal(t=2, pid=11, sig=10, by="panel"),
        Exit(t=3, pid=10, code=-15),
        Exit(t=3, pid=11, code=-9),
        Operator(t=4, action="down"),
        Exit(t=5, pid=12, code=-9),
    )
    assert [member.pid for member in gang.unasked(())] == [11]


def test_operator_who_only_looks_stops_nothing() -> None:
    assert seen(Operator(t=1, action="stacks")).stop_t is None


def test_stopped_until_it_goes_on() -> None:
    events = [Spawn(t=0, source="rank-0", pid=1, rank=0), State(t=5, pid=1, state="T")]
    assert seen(*events).stopped == {0: 5}
    assert seen(*events, State(t=6, pid=1, state="R")).stopped == {}
    assert seen(*events, Exit(t=6, pid=1, code=-9)).stopped == {0: 5}


@pytest.mark.parametrize(
    ("bus", "spelled"),
    [("0000:06:00", "06:00"), ("00000000:06:00.0", "06:00"), ("0001:C1:00.0", "1:c1:00")],
)
def test_buses_in_one_spelling(bus: str, spelled: str) -> None:
    assert normal_bus(bus) == spelled


def test_index_of_a_gpu_is_no_rank_where_a_rank_holds_memory_of_it() -> None:
    gang = seen(
        Spawn(t=0, source="rank-2", pid=12, rank=2),
        Gpu(t=1, index=0, bus_id="00000000:c1:00.0", processes=((12, 5), (999, 1))),
        Gpu(t=1, index=1, bus_id="00000000:c2:00.0"),
    )
    assert gang.rank_of_bus("0000:C1:00") == 2
    assert gang.rank_of_bus("0000:C2:00") == 1
    assert gang.rank_of_bus("0000:C3:00") is None


def test_what_a_member_runs_is_no_front_end() -> None:
    gang = seen(
        Spawn(t=0, source="engine", pid=1, ppid=99, command="python -m engine"),
        Spawn(t=1, source="engine", pid=10, ppid=1, command="ninja -j 4"),
        Spawn(t=1, source="engine", pid=11, ppid=10, command="nvcc x.cu"),
    )
    assert [gang.members[pid].role for pid in (1, 10, 11)] == ["frontend", "tracker", "tracker"]
