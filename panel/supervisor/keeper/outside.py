"""Processes of a gang that are no descendants of its keeper, such as those of a container.

Two command lines of the order reach them: one prints their ids, one ends them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from panel.supervisor import procfs
from panel.supervisor.keeper.children import start
from panel.supervisor.keeper.journal import note
from panel.supervisor.keeper.loop import Loop
from panel.supervisor.keeper.order import ProcessOrder

LOOK_S = 1.0
"""Between two looks: each starts a program."""


class Outside:
    """Runs the command lines; the programs themselves are no part of the gang."""

    def __init__(
        self, loop: Loop, orders: Iterable[ProcessOrder], found: Callable[[str, list[int]], None]
    ) -> None:
        """`found` is told the source and the ids that a look has brought."""
        self._loop = loop
        self._orders = [order for order in orders if order.pids or order.stop]
        self._found = found
        self._stopped = False
        self.helpers: set[int] = set()
        """The programs that run right now."""
        self.due = 0.0 if any(order.pids for order in self._orders) else None
        """Monotonic time of the next look; None where there is nothing to look for."""

    def look(self, now: float) -> None:
        """Ask for the ids, unless an answer is still awaited."""
        self.due = now + LOOK_S
        if not self.helpers:
            for order in self._orders:
                if order.pids:
                    self._run(order.source, order.pids)

    def stop(self) -> bool:
        """Have them ended, once; return False where the order does not say how."""
        stops = [order for order in self._orders if order.stop]
        if not self._stopped:
            self._stopped = True
            for order in stops:
                self._run(order.source, order.stop)
        return bool(stops)

    def _run(self, source: str, argv: list[str]) -> None:
        markers = (procfs.LAUNCH_MARKER, procfs.KEEPER_MARKER)
        env = {name: value for name, value in os.environ.items() if name not in markers}
        reading, writing = os.pipe()
        try:
            with open(os.devnull, "rb") as null:
                pid = start(argv, env, stdin=null.fileno(), stdout=writing, stderr=2)
        except OSError as error:
            os.close(reading)
            note(f"cannot run {argv[0]}: {error}")
            return
        finally:
            os.close(writing)
        self.helpers.add(pid)
        said = bytearray()

        def read() -> None:
            data = os.read(reading, 65536)
            said.extend(data)
            if not data:
                self._loop.remove(reading)
                os.close(reading)
                self.helpers.discard(pid)
                self._found(source, [int(word) for word in said.split() if word.isdigit()])

        self._loop.add(reading, read)
