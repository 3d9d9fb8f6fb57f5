"""What a node has noted → what the whole gang's evidence says. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from signal import SIGTERM

import msgspec

from panel.domain.events import (
    Alarm,
    Event,
    Exit,
    Gang,
    Gpu,
    Health,
    Operator,
    PhaseEvent,
    Signal,
    Spawn,
    State,
    Title,
)
from panel.domain.nodes import node_of, shared_pid
from panel.domain.phases import Phase

_events = msgspec.json.Decoder(Event)
_STOPS = ("down", "down_now", "shutdown", "relaunch")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A node among the others."""

    index: int
    nodes: tuple[str, ...]
    world_size: int

    @property
    def name(self) -> str:
        """Its name, and that of its source."""
        return self.nodes[self.index]


class Clock:
    """When a node's launch began in seconds since the gang's, by questions and answers.

    The answer's own time lies between the two; the quickest answer says it best.
    """

    def __init__(self) -> None:
        self.begun = 0.0
        self.within = float("inf")
        """Seconds by which `begun` may be wrong."""

    def measure(self, asked: float, answered: float, told: float) -> None:
        """Take in an answer that said `told` seconds, both ends in seconds of ours."""
        within = (answered - asked) / 2
        if within < self.within:
            self.within, self.begun = within, asked + within - told


class Mirror:
    """Of one node."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._alive: dict[int, None] = {}

    def read(self, lines: str, begun: float) -> Iterator[Event]:
        """Yield what the next lines of the node's events mean for the whole, on its clock."""
        for line in lines.splitlines():
            try:
                event = _events.decode(line)
            except msgspec.DecodeError:
                continue
            for each in self._read(event):
                yield msgspec.structs.replace(each, t=round(max(0.0, event.t + begun), 6))

    def _read(self, event: Event) -> Iterator[Event]:
        if isinstance(event, Operator) and event.action in _STOPS:
            # The gang's policy stops this part: none of it ends unasked any more.
            yield from (Signal(t=0.0, pid=pid, sig=SIGTERM, by="gang") for pid in self._alive)
        if (changed := _mirrored(event, self._place)) is None:
            return
        if isinstance(changed, Spawn):
            self._alive[changed.pid] = None
        elif isinstance(changed, Exit):
            self._alive.pop(changed.pid, None)
        yield changed


def served_elsewhere(event: Event, first: Place) -> Iterator[Event]:
    """Yield that the ranks of all other nodes serve once the API does, which only the first has:
    their own logs never say so."""
    if isinstance(event, Health) and event.code == 200:
        for rank in range(first.world_size):
            if node_of(rank, first.world_size, first.nodes) != first.name:
                yield PhaseEvent(t=event.t, rank=rank, phase=Phase.SERVING)


def _mirrored(event: Event, place: Place) -> Event | None:
    replace = msgspec.structs.replace
    match event:
        case Gang() | Operator():
            # The gang's own policy and operator are this node's.
            return None
        case Health():
            return None if place.index else event
        case PhaseEvent(rank=rank):
            here = node_of(rank, place.world_size, place.nodes) == place.name
            return event if here else None
        case Spawn(ppid=ppid):
            parent = None if ppid is None else shared_pid(place.index, ppid)
            pid = shared_pid(place.index, event.pid)
            return replace(event, source=place.name, pid=pid, ppid=parent)
        case Exit() | Signal() | Title() | State():
            return replace(event, pid=shared_pid(place.index, event.pid))
        case Gpu(processes=processes):
            held = None if processes is None else _shared(processes, place.index)
            return replace(event, processes=held)
        case Alarm(text=text):
            return replace(event, text=f"{place.name}: {text}")
    return event


def _shared(processes: tuple[tuple[int, int], ...], index: int) -> tuple[tuple[int, int], ...]:
    return tuple((shared_pid(index, pid), memory) for pid, memory in processes)
