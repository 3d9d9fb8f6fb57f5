"""One gang from its order to its end: what happens is noted, the policy answers, we act."""

from __future__ import annotations

import os
import signal
import time

from panel.domain.exits import exit_words
from panel.supervisor.keeper.children import Children, Process, start
from panel.supervisor.keeper.events import Events
from panel.supervisor.keeper.family import Family
from panel.supervisor.keeper.gang import TERM, Gang, Say, Stage, Step
from panel.supervisor.keeper.holes import Holes
from panel.supervisor.keeper.loop import Loop
from panel.supervisor.keeper.order import Order, ProcessOrder
from panel.supervisor.keeper.outside import Outside
from panel.supervisor.keeper.spawner import SOURCE, Spawner
from panel.supervisor.keeper.times import Arrivals

NEWCOMERS_S = 0.5
"""Between two looks for processes that the launcher of another engine starts."""


class Keeper:
    """The gang of one order."""

    def __init__(
        self,
        order: Order,
        markers: dict[str, str],
        loop: Loop,
        children: Children,
        spawner: Spawner | None,
    ) -> None:
        """Open the files of the evidence folder. `markers` go into the environment of the gang.

        Raises OSError.
        """
        self.events = Events(order.folder, order.t0_mono_ns)
        self._order = order
        self._env = order.env | markers | {"MOEPANEL_T0_NS": str(order.t0_mono_ns)}
        self._loop = loop
        self._children = children
        self._spawner = spawner
        self._gang = Gang(order.policy)
        ranks = sum(process.world_size for process in order.processes)
        self._outside = Outside(loop, order.processes, self._found)
        self._family = Family(
            children,
            self.events,
            markers,
            self._died,
            world_size=ranks,
            helpers=self._outside.helpers,
        )
        self._newcomers_due = None if order.spawner else 0.0
        self._arrivals = Arrivals(order.logs, order.folder, self.events.t)
        self._holes = Holes(order.logs, order.folder, self.events.alarm)
        if self._arrivals.fd is not None:
            loop.add(self._arrivals.fd, self._arrivals.reported)
        loop.signalled = self._signalled

    def run(self) -> None:
        """Start the gang and keep it until nothing is left of it."""
        self._begin()
        while self._gang.stage is not Stage.DOWN:
            self._loop.turn(self._timeout())
            self._children.reap_strays()
            self._work(time.monotonic())
        self._arrivals.sample()

    # Starting

    def _begin(self) -> None:
        for process in self._order.processes:
            try:
                self._start(process)
            except OSError as error:
                self._refuse(f"cannot start {process.source}: {error}", None)
                return
        if self._order.spawner is None:
            self._take(self._gang.started())
        elif self._spawner is None:
            self._refuse("the order wants a spawner and this keeper was started without", None)
        else:
            self._spawner.log_to(self._order.spawner.logs.get(SOURCE))
            self._spawner.news = self._spawner_news
            self._spawner_news()

    def _start(self, process: ProcessOrder) -> None:
        with open(os.devnull, "rb") as null, open(process.log, "ab") as log:
            pid = start(
                process.argv,
                os.environ | self._env,
                stdin=null.fileno(),
                stdout=log.fileno(),
                stderr=log.fileno(),
                cwd=process.cwd,
            )
        self._family.join(process.source, pid, " ".join(process.argv))

    def _spawner_news(self) -> None:
        wanted, spawner = self._order.spawner, self._spawner
        if wanted is None or spawner is None or self._gang.stage is not Stage.STARTING:
            return
        if spawner.refusal is not None:
            self._refuse(*spawner.refusal)
        elif spawner.pids is not None:
            for source, pid in spawner.pids.items():
                self._family.join(source, pid)
            # Their deaths queue up meanwhile: their exit codes are ours once the spawner is gone.
            spawner.leave()
            self._take(self._gang.started())
        elif spawner.ready:
            spawner.order(wanted.argv, self._env, wanted.logs)

    def _refuse(self, reason: str, code: int | None) -> None:
        self._take(self._gang.refused(time.monotonic(), reason, code))

    # What happens

    def _died(self, process: Process, code: int | None) -> None:
        reason = f"{self._family.name(process)} (pid {process.pid}) {exit_words(code)}"
        self._take(self._gang.failed(time.monotonic(), reason))

    def _found(self, source: str, pids: list[int]) -> None:
        self._family.notice_outside(source, pids)

    def _signalled(self, sig: int) -> None:
        now = time.monotonic()
        if sig == signal.SIGTERM:
            self._take(self._gang.stop(now))
        elif sig == signal.SIGINT:
            self._take(self._gang.kill(now))

    # What is due

    def _timeout(self) -> float | None:
        if self._gang.ending and not self._family.alive:
            return 0.0
        due = (
            self._gang.deadline,
            self._arrivals.due,
            self._holes.due,
            self._newcomers_due,
            self._outside.due,
        )
        moments = [moment for moment in due if moment is not None]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _work(self, now: float) -> None:
        if self._arrivals.due is not None and now >= self._arrivals.due:
            self._arrivals.look(now)
        if now >= self._holes.due:
            self._holes.look(now)
        if self._newcomers_due is not None and now >= self._newcomers_due:
            self._newcomers_due = now + NEWCOMERS_S
            self._family.notice_newcomers()
            self._family.notice_titles()
        if self._outside.due is not None and now >= self._outside.due:
            self._outside.look(now)
        self._take(self._gang.passed(now))
        if self._gang.stage is Stage.ENDING:
            # Whoever has become an orphan since TERM was sent to its parent.
            self._terminate()
        if self._gang.ending and not self._family.alive:
            self._family.notice_remaining()
            gang = self._gang
            self._take(gang.cleared(now) if self._family.alive else gang.emptied())

    # What the policy wants

    def _take(self, step: Step) -> None:
        self._gang, actions = step
        for action in actions:
            if isinstance(action, Say):
                alive = tuple(self._family.alive) if action.state == "down" else ()
                self.events.gang(action.state, action.reason, action.code, alive)
            elif action is TERM:
                self._terminate()
            else:
                self._family.kill()

    def _terminate(self) -> None:
        if not self._outside.stop():
            self._family.terminate()
