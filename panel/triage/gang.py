"""The gang as its events tell it: who is who, who ended when, what was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from panel.domain.events import (
    Event,
    Exit,
    Gang,
    Gpu,
    Health,
    Kernel,
    Operator,
    PhaseEvent,
    Signal,
    Spawn,
    State,
    Title,
)
from panel.triage.member import Member

_STOPS = ("down", "down_now", "relaunch", "shutdown", "stop", "kill", "restart")
_ENDING = (1, 2, 3, 9, 15)
"""Signals by which a process is ended: HUP, INT, QUIT, KILL, TERM."""
_TOGETHER_S = 0.05
"""Exits this close may have been seen by one look, whatever their true order."""


@dataclass(slots=True)
class GangState:
    """What the events have told so far; `see` is the only thing that changes it."""

    members: dict[int, Member] = field(default_factory=dict)
    exits: list[Member] = field(default_factory=list)
    stop_t: float | None = None
    down_t: float | None = None
    refused: Gang | None = None
    keeper_lost: Gang | None = None
    health: dict[str, Health] = field(default_factory=dict)
    kernel: list[Kernel] = field(default_factory=list)
    gpus: dict[int, Gpu] = field(default_factory=dict)
    phases: dict[int, str] = field(default_factory=dict)
    last_t: float = 0.0
    count: int = 0

    def see(self, event: Event) -> None:
        """Take in an event."""
        self.count += 1
        self.last_t = max(self.last_t, event.t)
        match event:
            case Spawn():
                self.members[event.pid] = Member(
                    event.pid,
                    event.source,
                    event.ppid,
                    event.rank,
                    event.command or "",
                    event.ppid in self.members,
                )
            case Title(pid=pid) if pid in self.members:
                member = self.members[pid]
                member.title = event.title
                member.rank = member.rank if event.rank is None else event.rank
            case State(pid=pid) if pid in self.members:
                stopped = event.state == "T"
                self.members[pid].stopped_t = event.t if stopped else None
            case Signal(pid=pid, sig=sig) if pid in self.members and sig in _ENDING:
                self.members[pid].asked = self.members[pid].asked or self.members[pid].exit is None
            case Exit(pid=pid) if pid in self.members and self.members[pid].exit is None:
                self._exit(self.members[pid], event)
            case Operator(action=action) if action in _STOPS:
                self._stop(event.t)
            case Health():
                self.health[event.endpoint] = event
            case PhaseEvent():
                self.phases[event.rank] = event.phase
            case Kernel():
                self.kernel.append(event)
            case Gpu():
                self.gpus[event.index] = event
            case Gang():
                self._gang(event)

    @property
    def down(self) -> bool:
        """Whether nothing of the gang is left."""
        gone = bool(self.members) and all(each.exit for each in self.members.values())
        return self.down_t is not None or gone

    @property
    def headless(self) -> bool:
        """Whether the process that started the others is gone, so that no more will be said."""
        return self.down or any(each.role == "frontend" for each in self.exits)

    @property
    def stopped(self) -> dict[int, float]:
        """Since when which ranks are in state T, or were until they ended."""
        return {
            member.rank: member.stopped_t
            for member in self.members.values()
            if member.rank is not None and member.stopped_t is not None
        }

    def settle_ranks(self, world: int, known: dict[int, int]) -> None:
        """Give ranks to processes that never said theirs: by what the log says of their pids, else
        by the order in which their parent started them, as engines start rank after rank."""
        for pid, rank in known.items():
            if pid in self.members and self.members[pid].rank is None:
                self.members[pid].rank = rank
        siblings: dict[int, list[Member]] = {}
        for member in self.members.values():
            if member.ppid is not None and member.role in ("child", "rank"):
                siblings.setdefault(member.ppid, []).append(member)
        for group in siblings.values():
            group.sort(key=lambda each: each.pid)
            if world < 2 or len(group) < world:
                continue
            if all(each.rank in (None, index) for index, each in enumerate(group[:world])):
                for index, member in enumerate(group[:world]):
                    member.rank = index

    def rank_of_pid(self, pid: int) -> int | None:
        """Return the rank of a process of the gang."""
        member = self.members.get(pid)
        return member.rank if member else None

    def rank_of_bus(self, bus: str) -> int | None:
        """Return the rank that uses the GPU at a PCI address, as far as samples tell."""
        wanted = normal_bus(bus)
        for gpu in self.gpus.values():
            if gpu.bus_id and normal_bus(gpu.bus_id) == wanted:
                return self.rank_of_gpu(gpu)
        return None

    def rank_of_gpu(self, gpu: Gpu) -> int | None:
        """Return the rank that computes on a GPU: an index is none where ranks hold memory of other
        GPUs."""
        if gpu.rank is not None:
            return gpu.rank
        holders = {self.rank_of_pid(pid) for pid, _ in gpu.processes or ()} - {None}
        if len(holders) == 1:
            return holders.pop()
        return None if holders else gpu.index

    def together(self, member: Member) -> list[Member]:
        """Return those that ended at the same moment, it included."""
        t = member.exit.t if member.exit else 0.0
        return [each for each in self.exits if each.exit and abs(each.exit.t - t) <= _TOGETHER_S]

    def unasked(self, victims: Iterable[int]) -> list[Member]:
        """Return those that ended although nobody asked, without those that blame others."""
        spared = set(victims)
        return [
            each
            for each in self.exits
            if not each.asked and each.exit and each.exit.code not in spared
        ]

    def _exit(self, member: Member, event: Exit) -> None:
        done = member.role == "spawner" and event.code == 0
        stopping = self.stop_t is not None and event.t >= self.stop_t
        member.asked = member.asked or done or stopping
        member.exit = event
        member.place = len(self.exits)
        self.exits.append(member)

    def _stop(self, t: float) -> None:
        if self.stop_t is None:
            self.stop_t = t

    def _gang(self, event: Gang) -> None:
        match event.state:
            case "stopping":
                self._stop(event.t)
            case "down":
                self.down_t = event.t
            case "refused":
                self.refused = event
            case "helper_died":
                self.keeper_lost = event
                self.down_t = event.t


def normal_bus(bus: str) -> str:
    """Return a PCI address in one spelling: `06:00` of `00000000:06:00.0`, domain 0 left out."""
    parts = bus.lower().partition(".")[0].split(":")
    domain = parts[0].lstrip("0") if len(parts) > 2 else ""
    return ":".join([*([domain] if domain else []), *parts[-2:]])
