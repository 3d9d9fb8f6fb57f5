"""The gang policy as a value: what happens next, given what happened. Pure; times are monotonic."""

from __future__ import annotations

import signal
from enum import Enum
from typing import NamedTuple

from panel.supervisor.keeper.order import Policy

LAST_WAIT_S = 30.0
"""From KILL to giving up. The kernel needs seconds to take back pinned memory and a GPU."""


class Stage(Enum):
    """Where a gang is between its order and its end."""

    STARTING = 0
    UP = 1
    FAILING = 2
    """Somebody died; the survivors have a moment for their last words."""
    ENDING = 3
    """TERM was sent."""
    KILLING = 4
    """KILL was sent."""
    DOWN = 5


class Say(NamedTuple):
    """Write the event `gang`."""

    state: str
    reason: str = ""
    code: int | None = None


class Send(NamedTuple):
    """Send a signal: TERM to the children of the keeper, KILL to whatever belongs to the gang."""

    sig: int


Action = Say | Send
TERM, KILL = Send(signal.SIGTERM), Send(signal.SIGKILL)


class Gang(NamedTuple):
    """The state of a gang. Each step returns the next state and what is to be done."""

    policy: Policy
    stage: Stage = Stage.STARTING
    deadline: float | None = None
    """When `passed` is due."""
    asked: bool = False
    """The operator wants it stopped."""

    @property
    def ending(self) -> bool:
        """True from the first death or request to stop until the end."""
        return self.stage not in (Stage.STARTING, Stage.UP, Stage.DOWN)

    def started(self) -> Step:
        """Every process exists."""
        if self.stage is not Stage.STARTING:
            return self, ()
        return self._replace(stage=Stage.UP), (Say("up"),)

    def refused(self, now: float, reason: str, code: int | None) -> Step:
        """It cannot be started; what exists of it goes."""
        return self._kill(now, Say("refused", reason, code))

    def failed(self, now: float, reason: str) -> Step:
        """A process ended, unexpectedly unless the gang is ending."""
        if self.stage not in (Stage.STARTING, Stage.UP):
            return self, ()
        failing = self._replace(stage=Stage.FAILING, deadline=now + self.policy.evidence_s)
        return failing, (Say("failing", reason),)

    def stop(self, now: float) -> Step:
        """The operator asks, and by asking again insists."""
        if self.asked or self.stage is Stage.STARTING:
            return self.kill(now)
        asked = self._replace(asked=True)
        said = Say("stopping", "the operator stops it")
        if self.stage in (Stage.UP, Stage.FAILING):
            return asked._terminate(now, said)
        return asked, (said,)

    def kill(self, now: float) -> Step:
        """The operator wants it gone at once."""
        said = () if self.asked else (Say("stopping", "the operator kills it"),)
        return self._replace(asked=True)._kill(now, *said)

    def passed(self, now: float) -> Step:
        """Go on where the deadline has passed."""
        if self.deadline is None or now < self.deadline:
            return self, ()
        if self.stage is Stage.FAILING:
            return self._terminate(now)
        if self.stage is Stage.ENDING:
            return self._kill(now)
        return self._down("some processes could not be ended")

    def cleared(self, now: float) -> Step:
        """All known processes have ended and others have been found: those are killed."""
        return self._kill(now)

    def emptied(self) -> Step:
        """No process of the gang is left."""
        return self._down("")

    def _terminate(self, now: float, *said: Say) -> Step:
        deadline = now + self.policy.grace_s
        return self._replace(stage=Stage.ENDING, deadline=deadline), (*said, TERM)

    def _kill(self, now: float, *said: Say) -> Step:
        if self.stage is Stage.KILLING:
            return self, (*said, KILL)
        return self._replace(stage=Stage.KILLING, deadline=now + LAST_WAIT_S), (*said, KILL)

    def _down(self, reason: str) -> Step:
        return self._replace(stage=Stage.DOWN, deadline=None), (Say("down", reason),)


Step = tuple[Gang, tuple[Action, ...]]
