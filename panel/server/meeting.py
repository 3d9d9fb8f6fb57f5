"""Where the ranks wait for one another: wake-ups by semaphores that were made before the fork."""

from __future__ import annotations

import multiprocessing
import time

from panel.server.roster import Roster

_fork = multiprocessing.get_context("fork")


class _Arrivals:
    """Counts those who have come to a meeting."""

    def __init__(self, memory: memoryview, expected: int) -> None:
        self._count = memory.cast("q")
        self._expected = expected
        self._lock = _fork.Semaphore(1)

    def last(self, roster: Roster) -> bool:
        """Count this rank; return True, and start over, where it is the last one expected."""
        roster.arrive()
        roster.wait(self._lock.acquire)
        self._count[0] += 1
        last = self._count[0] == self._expected
        if last:
            self._count[0] = 0
        self._lock.release()
        return last


class _Gates:
    """Wake-ups of everybody who waits at a meeting.

    Two gates take turns, so that a rank that hurries on to the next meeting cannot take the wake-up
    of one that is still asleep in this one.
    """

    def __init__(self, sleepers: int) -> None:
        self._sleepers = sleepers
        self._gates = (_fork.Semaphore(0), _fork.Semaphore(0))
        self._turn = 0

    def sleep(self, roster: Roster) -> None:
        gate = self._gates[self._turn]
        self._turn ^= 1
        roster.wait(gate.acquire)

    def wake(self) -> None:
        gate = self._gates[self._turn]
        self._turn ^= 1
        for _ in range(self._sleepers):
            gate.release()


class Barrier:
    """All ranks meet: the last to arrive wakes the others.

    It knows how often this rank has come and how long it was here, to tell what meetings cost.
    """

    def __init__(self, memory: memoryview, world_size: int) -> None:
        self._arrivals = _Arrivals(memory, world_size)
        self._gates = _Gates(world_size - 1)
        self.meetings = 0
        self.seconds = 0.0

    def wait(self, roster: Roster) -> None:
        """Return once every rank has called this; `PeerLostError` where one never will."""
        begun = time.perf_counter()
        if self._arrivals.last(roster):
            self._gates.wake()
        else:
            self._gates.sleep(roster)
        self.meetings += 1
        self.seconds += time.perf_counter() - begun


class Rendezvous:
    """Where the followers wait for the leader, and the leader for the followers.

    The plan of the next step travels on the followers' wake-up.
    """

    def __init__(self, counter: memoryview, plan: memoryview, world_size: int) -> None:
        self._plan = plan
        self._followers = world_size - 1
        self._arrivals = _Arrivals(counter, self._followers)
        self._complete = _fork.Semaphore(0)
        self._gates = _Gates(self._followers)

    def follow(self, roster: Roster) -> bytes:
        """A follower's part of a step is done: wait for the next plan and return it."""
        if self._arrivals.last(roster):
            self._complete.release()
        self._gates.sleep(roster)
        length = int.from_bytes(self._plan[:4], "little")
        return bytes(self._plan[4 : 4 + length])

    def gather(self, roster: Roster) -> None:
        """The leader waits until all followers' parts of the step are done."""
        roster.arrive()
        if self._followers:
            roster.wait(self._complete.acquire)

    def release(self, plan: bytes) -> None:
        """The leader hands the followers their next plan; each release follows a `gather`."""
        self._plan[:4] = len(plan).to_bytes(4, "little")
        self._plan[4 : 4 + len(plan)] = plan
        self._gates.wake()


class Votes:
    """Numbers that all ranks have to settle on."""

    def __init__(self, memory: memoryview, world_size: int, barrier: Barrier) -> None:
        self._cells = memory.cast("q")
        self._barrier = barrier

    def all(self, value: int, roster: Roster) -> list[int]:
        """Return the values that the ranks call this with, by rank."""
        self._cells[roster.rank] = value
        self._barrier.wait(roster)
        values = self._cells.tolist()
        self._barrier.wait(roster)
        return values

    def least(self, value: int, roster: Roster) -> int:
        """Return the least of the values that the ranks call this with."""
        return min(self.all(value, roster))
