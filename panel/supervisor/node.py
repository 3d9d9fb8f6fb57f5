"""The node: takes requests, lets everything have its turn, publishes snapshots."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator

from panel import __version__
from panel.config.home import Home
from panel.config.profiles import load_profile
from panel.config.settings import Settings
from panel.domain.errors import BusyError, NotFoundError, PanelError
from panel.domain.flags import Flag, Profile
from panel.domain.gpu import GpuSample
from panel.domain.hang import Suspicion
from panel.domain.plan import Plan
from panel.domain.run import Run
from panel.domain.snapshot import Snapshot, Supervisor
from panel.domain.states import LaunchState
from panel.domain.wire import Accepted, Evidence, Relaunch, Up
from panel.engines.base import Engine
from panel.supervisor.evidence import read_lines
from panel.supervisor.kept import Kept
from panel.supervisor.launcher import launch_env
from panel.supervisor.ledger import Ledger
from panel.supervisor.planner import Planner, Prepared
from panel.supervisor.probes import Probes
from panel.supervisor.profiles import ProfileCache
from panel.supervisor.publisher import Publisher
from panel.supervisor.runner import Runner
from panel.supervisor.view import view_launch
from panel.supervisor.warm import Warm
from panel.supervisor.watch.host import sample_host
from panel.supervisor.watcher import Watcher

log = logging.getLogger(__name__)

BUSY_TICK_S = 0.1
IDLE_TICK_S = 1.0
SLOW_S = 1.0
WARM_AFTER_S = 3.0
"""Of serving in peace, before the next pair's imports take a core."""


class Node:
    """Belongs to one event loop, whose only task that changes anything is `run`."""

    def __init__(
        self, home: Home, settings: Settings, find_engine: Callable[[str], Engine]
    ) -> None:
        """Open the ledger. Raises `PanelError`."""
        self.home = home
        self.ledger = Ledger(home.ledger)
        self.publisher = Publisher()
        self.ended = asyncio.Event()
        """Set once a shutdown has come to its end."""
        self._settings = settings
        self._find_engine = find_engine
        self._wake = asyncio.Event()
        self._warm = Warm(home.log)
        self._probes = Probes(lambda: self._runner.running)
        self._kept = Kept(home, self._wake.set)
        self._runner = Runner(
            home, self.ledger, self._warm, self._kept, self._probes, self._wake.set
        )
        self._planner = Planner(home, find_engine, settings.profile, self._samples)
        self._profiles = ProfileCache(home)
        self._next: tuple[int, Prepared] | None = None
        """What a relaunch starts once the gang is down."""
        self._shutting_down = False
        self._started_unix = round(time.time(), 3)
        self._host = sample_host("", "")
        self._slow_due = 0.0

    async def run(self) -> None:
        """Adopt what runs, then watch and publish until cancelled."""
        self._probes.start()
        self._runner.adopt(self._find_engine)
        self._kept.adopt()
        try:
            while True:
                self._wake.clear()
                self._tick()
                try:
                    async with asyncio.timeout(BUSY_TICK_S if self._busy else IDLE_TICK_S):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        finally:
            self.publisher.close()

    async def close(self) -> None:
        """Let go of everything; a gang that runs is left serving."""
        await self._kept.close(self._busy)
        await self._runner.close()
        await self._probes.close()
        await asyncio.to_thread(self._warm.close)
        self.ledger.close()

    # Requests

    def flags(self, profile: Profile | str | None) -> tuple[Flag, ...]:
        """Return the flags of a profile's engine, of the last profile's where none is named.

        The first time it may take as long as importing the engine: not for the event loop.
        """
        return self._planner.engine(profile, self._runner.basis).flags()

    def plan_up(self, body: Up) -> Plan:
        """Return what `up` would start."""
        return self._planner.up(body, self._runner.basis).plan

    def plan_relaunch(self, body: Relaunch) -> Plan:
        """Return what `relaunch` would start."""
        return self._planner.relaunch(body, self._runner.basis).plan

    def up(self, body: Up) -> Accepted:
        """Launch. Raises `BusyError` while a gang runs, `RefusedError` where the plan refuses."""
        self._refuse_ending()
        if (launch := self._runner.running) is not None:
            words = "stopping" if launch.run.state is LaunchState.STOPPING else "running"
            raise BusyError(
                f"launch {launch.spec.id} is {words}", "use relaunch, or wait until it is down"
            )
        self._refuse_waiting()
        prepared = self._planner.up(body, self._runner.basis)
        prepared.refuse()
        return self._launch(prepared)

    def relaunch(self, body: Relaunch) -> Accepted:
        """Stop what runs, then launch; nothing is stopped unless the plan is sound."""
        self._refuse_ending()
        self._refuse_waiting()
        prepared = self._planner.relaunch(body, self._runner.basis)
        prepared.refuse(body.force)
        return self._launch(prepared)

    def down(self, now: bool) -> Accepted:
        """Stop the gang; a relaunch that waits is forgotten, and weights are kept no longer."""
        self._next = None
        launch = self._runner.stop("down_now" if now else "down")
        self._kept.drop("the operator stops the launch")
        self._wake.set()
        return Accepted(launch=launch.spec.id if launch else None)

    def shutdown(self, now: bool) -> Accepted:
        """Stop the gang, then set `ended`."""
        self._next = None
        self._shutting_down = True
        launch = self._runner.stop("down_now" if now else "shutdown")
        self._kept.drop("shutdown")
        self._wake.set()
        return Accepted(launch=launch.spec.id if launch else None)

    def watching(self, number: int) -> Watcher:
        """Return what watches a launch. Raises `NotFoundError` for any but the running one."""
        watcher = self._runner.watcher
        if watcher is None or watcher.launch.spec.id != number or not watcher.launch.live:
            raise NotFoundError(
                f"launch {number} does not run", "its evidence is kept all the same"
            )
        return watcher

    def evidence(self, number: int, offset: int) -> Evidence:
        """Return how the present launch stands, and its events from a place on. Raises
        `NotFoundError` for another one."""
        launch = self._runner.launch
        if launch is None or launch.spec.id != number:
            raise NotFoundError(f"launch {number} is not the present one")
        # Asked first: what is written later comes with the next answer.
        live = launch.live
        events = read_lines(launch.folder.events, offset)
        return Evidence(
            t=launch.t,
            live=live,
            state=launch.state,
            outcome=launch.verdict.told if launch.verdict else "",
            events=events.decode(errors="replace"),
            end=offset + len(events),
        )

    @property
    def _suspicion(self) -> Suspicion | None:
        return self._runner.watcher.hangs.suspicion if self._runner.watcher else None

    def _refuse_ending(self) -> None:
        if self._shutting_down:
            raise BusyError("the supervisor is shutting down", "start it again by moepanel up")

    def _refuse_waiting(self) -> None:
        if self._next is not None:
            raise BusyError(f"a relaunch is under way to launch {self._next[0]}", "wait for it")

    def _launch(self, prepared: Prepared) -> Accepted:
        number = self._runner.new_number()
        self._kept.make_room(prepared)
        if self._runner.running is None and self._kept.fits(prepared):
            self._runner.start(number, prepared)
        else:
            self._next = (number, prepared)
            self._runner.stop("relaunch")
        self._wake.set()
        return Accepted(launch=number)

    # Turns

    @property
    def _busy(self) -> bool:
        return self._runner.running is not None

    def _tick(self) -> None:
        self._runner.tick()
        self._kept.tick(self._busy)
        if not self._busy:
            self._go_on()
        now = time.monotonic()
        if now >= self._slow_due:
            self._slow_due = now + SLOW_S
            self._host = sample_host(self._probes.gpu_note, self._probes.kernel_note)
            self._profiles.refresh()
            self._keep_warm()
        self._publish()

    def _go_on(self) -> None:
        """Nothing runs: do what waited for that."""
        if self._next is not None:
            number, prepared = self._next
            if not self._kept.fits(prepared):
                return
            self._next = None
            try:
                self._runner.start(number, prepared)
            except PanelError as error:
                log.error("the relaunch failed: %s", error)
                if self._runner.launch is not None:
                    self._runner.launch.note = f"the relaunch failed: {error}"
        elif self._shutting_down and self._kept.gone:
            self.ended.set()

    def _keep_warm(self) -> None:
        launch = self._runner.launch
        in_peace = launch is None or not launch.live or _serves(launch.run, launch.t)
        if not self._settings.warm or self._shutting_down or self._next is not None or not in_peace:
            return
        try:
            name = launch.spec.profile if launch else self._settings.profile
            profile = load_profile(self.home, name)
            engine = self._find_engine(profile.engine)
            if engine.spawner and engine.missing() is None:
                self._warm.prepare(engine.spawner, launch_env(engine, profile))
        except (PanelError, OSError) as error:
            log.debug("nothing is kept warm: %s", error)

    def _publish(self) -> None:
        launch = self._runner.launch
        self.publisher.publish(
            Snapshot(
                seq=0,
                supervisor=Supervisor(
                    pid=os.getpid(),
                    version=__version__,
                    started_unix=self._started_unix,
                    home=str(self.home.state),
                    socket=str(self.home.socket),
                    warm=self._warm.ready,
                ),
                host=self._host,
                profiles=self._profiles.profiles,
                broken_profiles=self._profiles.broken,
                launch=view_launch(launch, self._suspicion) if launch else None,
                gpus=self._probes.gpus(launch),
                elsewhere=launch.samples.elsewhere if launch else (),
                kept=self._kept.weights,
            )
        )

    def _samples(self) -> Iterator[GpuSample]:
        return (gpu.sample for gpu in self._probes.gpus(None))


def _serves(run: Run, t: float) -> bool:
    """Return whether a launch has been serving for a while at `t`."""
    serving = run.state is LaunchState.SERVING
    return serving and run.ready_t is not None and t - run.ready_t > WARM_AFTER_S
