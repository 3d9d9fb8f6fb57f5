"""All processes of a gang: the members that the order names, and whatever those start."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, KeysView, Mapping, Set

from panel.logs.titles import rank_of_title, title_of
from panel.supervisor import procfs
from panel.supervisor.keeper.children import Children, Process
from panel.supervisor.keeper.descent import Newcomers, remaining
from panel.supervisor.keeper.events import Events

ORPHAN = "orphan"
"""Source of a process whose parent in the gang is gone."""


class Family:
    """Notes births, deaths and signals of the processes of one gang."""

    def __init__(
        self,
        children: Children,
        events: Events,
        markers: Mapping[str, str],
        died: Callable[[Process, int | None], None],
        *,
        world_size: int,
        helpers: Set[int],
    ) -> None:
        """`died` is told of the death and exit code of a member, once it is noted.

        `world_size`: of ranks that members start; they are known by their titles. `helpers`: what
        the keeper runs for itself.
        """
        self._children = children
        self._events = events
        self._markers = markers
        self._died = died
        self._newcomers = Newcomers()
        self._members: set[int] = set()
        self._world_size = world_size
        self._helpers = helpers
        self._titles: dict[int, str] = {}
        self._terminated: set[int] = set()

    @property
    def alive(self) -> KeysView[int]:
        """Process ids of those who have not ended, as far as known."""
        return self._children.alive.keys()

    def join(self, source: str, pid: int, command: str = "") -> None:
        """Take in a member, which is or is about to be a child of this process."""
        self._events.spawn(source, pid, os.getpid(), command)
        self._members.add(pid)
        self._children.watch(pid, source, self._ended)

    def notice_newcomers(self) -> None:
        """Note what members have started since the last time. Cheap."""
        self._notice(self._newcomers.look(set(self.alive)))

    def notice_outside(self, source: str, pids: Iterable[int]) -> None:
        """Note processes that somebody else has started for a member."""
        for pid in pids:
            if pid not in self.alive and (stat := procfs.stat(pid)) and stat.state not in "ZX":
                self._take_in(source, stat)

    def notice_titles(self) -> None:
        """Note what newcomers call themselves: with an engine's title a process is a member.

        Others, such as compilers, may come and go.
        """
        for pid in self.alive - self._members | self._titles.keys() & self.alive:
            title = title_of(procfs.command_line(pid))
            if title is not None and title != self._titles.get(pid):
                self._titles[pid] = title
                self._members.add(pid)
                self._events.title(pid, title, rank_of_title(title, self._world_size))

    def name(self, process: Process) -> str:
        """Return what people call a process."""
        return self._titles.get(process.pid) or process.source.replace("rank-", "rank ")

    def notice_remaining(self) -> None:
        """Note whatever lives and belongs to the gang. Reads the environment of every process."""
        self._notice(remaining(self._markers))

    def terminate(self) -> None:
        """Send TERM to those of our children who have not had it.

        What has a living parent in the gang is ended by that as it sees fit, or is an orphan later.
        """
        for process in list(self._children.alive.values()):
            if process.pid not in self._terminated and _is_our_child(process.pid):
                self._terminated.add(process.pid)
                self._signal(process, signal.SIGTERM)

    def kill(self) -> None:
        """Send KILL to everything that belongs to the gang."""
        self.notice_remaining()
        for process in list(self._children.alive.values()):
            self._signal(process, signal.SIGKILL)

    def _notice(self, stats: Iterable[procfs.Stat]) -> None:
        for stat in stats:
            if stat.pid not in self.alive and not self._helpers & {stat.pid, stat.ppid}:
                parent = self._children.alive.get(stat.ppid)
                self._take_in(parent.source if parent else ORPHAN, stat)

    def _take_in(self, source: str, stat: procfs.Stat) -> None:
        self._events.spawn(source, stat.pid, stat.ppid, procfs.command_line(stat.pid))
        self._children.watch(stat.pid, source, self._ended)

    def _signal(self, process: Process, sig: int) -> None:
        if process.send(sig):
            self._events.signal(process.pid, sig)

    def _ended(self, process: Process, code: int | None) -> None:
        self._events.exit(process.pid, code)
        if process.pid in self._members:
            self._died(process, code)


def _is_our_child(pid: int) -> bool:
    stat = procfs.stat(pid)
    return stat is not None and stat.ppid == os.getpid()
