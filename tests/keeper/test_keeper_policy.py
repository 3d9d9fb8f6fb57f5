"""The gang policy, without processes."""

from __future__ import annotations

import signal

from hypothesis import given
from hypothesis import strategies as st

from panel.supervisor.keeper.gang import (
    KILL,
    LAST_WAIT_S,
    TERM,
    Action,
    Gang,
    Say,
    Send,
    Stage,
    Step,
)
from panel.supervisor.keeper.order import Policy

NEW = Gang(Policy(evidence_s=2.0, grace_s=10.0))
UP = NEW.started()[0]


def test_a_failure_runs_through_evidence_term_and_kill() -> None:
    gang, actions = UP.failed(100.0, "rank 3 is gone")
    assert actions == (Say("failing", "rank 3 is gone"),)
    assert gang.passed(101.9) == (gang, ())
    assert gang.failed(101.0, "rank 4 is gone") == (gang, ())
    gang, actions = gang.passed(102.0)
    assert actions == (TERM,)
    gang, actions = gang.passed(112.0)
    assert actions == (KILL,)
    gang, actions = gang.passed(112.0 + LAST_WAIT_S)
    assert actions == (Say("down", "some processes could not be ended"),)
    assert gang.stage is Stage.DOWN


def test_a_stop_cuts_the_evidence_short() -> None:
    gang, _ = UP.failed(100.0, "rank 3 is gone")
    gang, actions = gang.stop(100.5)
    assert [type(action) for action in actions] == [Say, Send]
    assert gang.deadline == 110.5


def test_a_stop_after_term_waits_for_the_grace_and_a_second_does_not() -> None:
    gang, _ = UP.failed(100.0, "rank 3 is gone")
    gang, _ = gang.passed(102.0)
    gang, actions = gang.stop(103.0)
    assert [action.state for action in actions if isinstance(action, Say)] == ["stopping"]
    assert gang.deadline == 112.0
    gang, actions = gang.stop(104.0)
    assert actions == (KILL,)


def test_a_death_while_stopping_is_no_failure() -> None:
    gang, _ = UP.stop(100.0)
    assert gang.failed(101.0, "rank 0 ended with exit code 0") == (gang, ())


def test_more_kills_do_not_put_off_the_end() -> None:
    gang, _ = UP.kill(100.0)
    again, actions = gang.cleared(120.0)
    assert actions == (KILL,)
    assert again.deadline == 100.0 + LAST_WAIT_S


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["started", "failed", "stop", "kill", "passed", "cleared"]),
        st.floats(0.0, 40.0),
    ),
    max_size=12,
)


def step(gang: Gang, name: str, now: float) -> Step:
    match name:
        case "started":
            return gang.started()
        case "failed":
            return gang.failed(now, "somebody is gone")
        case "stop":
            return gang.stop(now)
        case "kill":
            return gang.kill(now)
        case "passed":
            return gang.passed(now)
    return gang.cleared(now)


@given(STEPS)
def test_any_history_goes_forward_and_comes_to_an_end(steps: list[tuple[str, float]]) -> None:
    gang, now = NEW, 0.0
    actions: list[Action] = []
    for name, wait in steps:
        if gang.stage is Stage.DOWN:
            break
        now += wait
        after, more = step(gang, name, now)
        assert after.stage.value >= gang.stage.value
        assert after.ending == (after.deadline is not None)
        gang = after
        actions += more
    for _ in range(4):
        if gang.stage is Stage.DOWN or gang.deadline is None:
            break
        gang, more = gang.passed(gang.deadline)
        actions += more
    states = [action.state for action in actions if isinstance(action, Say)]
    assert (gang.stage is Stage.DOWN) == ("down" in states)
    assert gang.stage is Stage.DOWN or not gang.ending
    assert len(states) == len(set(states))
    sent = [action.sig for action in actions if isinstance(action, Send)]
    assert signal.SIGTERM not in sent[1:]
    assert gang.stage is not Stage.DOWN or signal.SIGKILL in sent
