"""The state of a launch from its events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from panel.domain.events import (
    Event,
    Exit,
    Gang,
    Health,
    Operator,
    PhaseEvent,
    Signal,
    Spawn,
    Title,
)
from panel.domain.run import Run, phase_seconds, reduce, reduce_all, start_seconds
from panel.domain.states import LaunchState

SPAWN = Spawn(t=0.1, source="rank-0", pid=10, rank=0)
READY = Health(t=3.0, endpoint="/ready", code=200, ms=1.0)


def state(*events: Event) -> LaunchState:
    return reduce_all(Run(), events).state


def test_the_quiet_life() -> None:
    assert state(SPAWN) is LaunchState.LAUNCHING
    assert state(SPAWN, Health(t=1.0, endpoint="/ready", code=503, ms=1.0)) is LaunchState.LAUNCHING
    assert state(SPAWN, READY) is LaunchState.SERVING
    stop = Operator(t=9.0, action="down")
    assert state(SPAWN, READY, stop) is LaunchState.STOPPING
    assert state(SPAWN, READY, stop, Gang(t=9.5, state="down")) is LaunchState.STOPPED


def test_ready_is_the_first_answer() -> None:
    run = reduce_all(Run(), [SPAWN, READY, Health(t=9.0, endpoint="/ready", code=200, ms=1.0)])

    assert run.ready_t == 3.0


def test_crash_outlives_a_late_stop() -> None:
    failing = Gang(t=4.0, state="failing")
    stop = Operator(t=4.1, action="down")

    assert state(SPAWN, READY, failing, stop) is LaunchState.FAILING
    assert state(SPAWN, READY, failing, stop, Gang(t=5.0, state="down")) is LaunchState.CRASHED


def test_stop_outlives_a_late_failure() -> None:
    events = (Operator(t=4.0, action="down"), Gang(t=4.1, state="failing"))

    assert state(SPAWN, *events) is LaunchState.STOPPING


def test_keeper_stopped_from_outside() -> None:
    events = (SPAWN, READY, Gang(t=4.0, state="stopping", reason="TERM"), Gang(t=5.0, state="down"))

    assert state(*events) is LaunchState.STOPPED


def test_refused_and_lost() -> None:
    refused = Gang(t=0.5, state="refused", reason="no")

    assert state(refused, Gang(t=0.6, state="down")) is LaunchState.REFUSED
    assert state(SPAWN, READY, Gang(t=9.0, state="helper_died", reason="x")) is LaunchState.LOST


def test_whose_end_was_expected() -> None:
    spawner = Spawn(t=0.0, source="spawner", pid=5)
    other = Spawn(t=0.1, source="rank-1", pid=11, rank=1)
    third = Spawn(t=0.1, source="rank-2", pid=12, rank=2)
    run = reduce_all(
        Run(),
        [
            spawner,
            SPAWN,
            other,
            third,
            Exit(t=0.2, pid=5, code=0),
            Exit(t=1.0, pid=12, code=0),
            Signal(t=1.1, pid=10, sig=15, by="keeper"),
            Signal(t=1.1, pid=12, sig=15, by="keeper"),
            Exit(t=1.2, pid=10, code=0),
            Exit(t=1.3, pid=11, code=13),
        ],
    )

    assert [process.pid for process in run.unexpected] == [12, 11]
    assert [process.label for process in run.unexpected] == ["rank 2", "rank 1"]
    assert run.deaths == (5, 12, 10, 11)


def test_phase_seconds_are_those_of_the_slowest_rank() -> None:
    def entered(rank: int, *times: float) -> list[Event]:
        names = ("weights", "capture", "ready", "serving", "stopped")
        return [
            PhaseEvent(t=t, rank=rank, phase=name) for t, name in zip(times, names, strict=True)
        ]

    run = reduce_all(Run(), [*entered(0, 1, 2, 5, 5, 9), *entered(1, 1, 4, 5, 5, 9)])

    assert phase_seconds(run) == {"weights": 3.0, "capture": 3.0}
    assert run.phase(0) == "stopped"
    assert run.phase(7) == "spawn"


def test_every_second_of_a_start_is_accounted_for() -> None:
    assert start_seconds(Run()) == {}
    names = ("args", "weights", "ready", "serving")
    phases = [
        PhaseEvent(t=t, rank=0, phase=name)
        for t, name in zip((0.5, 0.5, 2.0, 2.0), names, strict=True)
    ]
    so_far = start_seconds(reduce_all(Run(), [SPAWN, *phases]))
    assert so_far == {"processes": 0.5, "args": 0.0, "weights": 1.5}
    seconds = start_seconds(reduce_all(Run(), [SPAWN, *phases, READY]))
    assert seconds == so_far | {"answering": 1.0}
    assert sum(seconds.values()) == READY.t


_pids = st.integers(10, 14)
_events = st.one_of(
    st.builds(Spawn, t=st.just(0.0), source=st.just("rank-0"), pid=_pids, rank=st.integers(0, 3)),
    st.builds(Exit, t=st.just(1.0), pid=_pids, code=st.sampled_from([0, 1, -9, None])),
    st.builds(Signal, t=st.just(1.0), pid=_pids, sig=st.just(15), by=st.just("keeper")),
    st.builds(Operator, t=st.just(1.0), action=st.sampled_from(["up", "down", "relaunch"])),
    st.builds(
        Gang,
        t=st.just(2.0),
        state=st.sampled_from(["up", "failing", "stopping", "down", "refused", "helper_died"]),
    ),
    st.just(READY),
)


@given(st.lists(_events, max_size=30))
def test_any_order_of_events_keeps_the_rules(events: list[Event]) -> None:
    run = Run()
    for event in events:
        after = reduce(run, event)
        assert after.state.live is after.live
        assert set(after.deaths) <= set(after.processes)
        assert run.ready_t is None or after.ready_t == run.ready_t
        assert after.deaths[: len(run.deaths)] == run.deaths
        run = after


def test_a_title_makes_a_member_and_a_rank_of_what_a_launcher_started() -> None:
    launcher = Spawn(t=0.1, source="engine", pid=10, ppid=9)
    worker = Spawn(t=0.2, source="engine", pid=11, ppid=10)
    named = Title(t=0.3, pid=11, title="VLLM::Worker_TP1", rank=1)
    core = Spawn(t=0.4, source="engine", pid=12, ppid=10)
    titled = Title(t=0.5, pid=12, title="VLLM::Core")
    run = reduce_all(Run(), [launcher, worker, named, core, titled])

    assert [each.rank for each in run.processes.values()] == [None, 1, None]
    assert [each.label for each in run.processes.values()] == ["engine", "rank 1", "Core"]
    assert not any(each.tool for each in run.processes.values())
    died = reduce(run, Exit(t=1.0, pid=11, code=None))
    assert [each.rank for each in died.unexpected] == [1]


def test_the_end_of_a_tool_says_nothing() -> None:
    launcher = Spawn(t=0.1, source="engine", pid=10, ppid=9)
    compiler = Spawn(t=0.2, source="engine", pid=11, ppid=10, command="nvcc x.cu")
    run = reduce_all(Run(), [launcher, compiler, Exit(t=1.0, pid=11, code=None)])
    assert run.processes[11].tool
    assert run.unexpected == ()


def test_other_engines_are_ready_by_their_health() -> None:
    health = Health(t=3.0, endpoint="/health", code=200, ms=1.0)
    assert state(SPAWN, health) is LaunchState.SERVING
