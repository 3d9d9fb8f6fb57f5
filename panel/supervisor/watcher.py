"""Watches one launch: its events and its keeper's end at once, everything else in turn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from signal import SIGTERM

from panel.domain.events import Alarm, Gang, Health
from panel.domain.states import LaunchState
from panel.supervisor.evidence import read_tail
from panel.supervisor.hangs import Hangs
from panel.supervisor.launch import Launch
from panel.supervisor.probes import Probes
from panel.supervisor.sweep import Swept, sweep, sweep_nodes
from panel.supervisor.watch.engine import EngineProbe
from panel.supervisor.watch.figures import engine_figures, gpu_figures

log = logging.getLogger(__name__)

SLOW_S = 1.0
RELEASE_S = 5.0
"""After its end: the driver frees the memory of a process some time after it is gone."""
LOOK_S = 30.0
"""For so long after a launch its GPUs are looked at."""


class Watcher:
    """The moving part around a `Launch`; belongs to the event loop that creates it."""

    def __init__(
        self, launch: Launch, api_key: str | None, probes: Probes, wake: Callable[[], None]
    ) -> None:
        """`wake` is called when something happened that a tick should look at."""
        self.launch = launch
        self.hangs = Hangs(launch, probes)
        self.settled = not launch.live and launch.verdict is not None and launch.verdict.final
        """Nothing is left to watch or to conclude."""
        self._probes = probes
        self._freed = self.settled
        self._ended: float | None = None
        self._gpus_recorded = False
        self._wake = wake
        self._sweep: asyncio.Task[Swept] | None = None
        self._probe: asyncio.Task[None] | None = None
        self._slow_due = 0.0
        self._ledger_state = launch.run.state
        if launch.keeper is not None:
            asyncio.get_running_loop().add_reader(launch.keeper.pidfd, self._keeper_ended)
            health = launch.engine.health
            probe = EngineProbe(launch.spec.url, health, api_key, launch.metrics, self._answered)
            self._probe = asyncio.create_task(probe.run())

    def tick(self) -> bool:
        """Look at what is due; return whether the ledger's row has changed."""
        self._look_at_gpus()
        if self.settled:
            return False
        launch = self.launch
        now = time.monotonic()
        launch.read_events()
        slow = now >= self._slow_due
        if slow:
            self._slow_due = now + SLOW_S
            launch.sample_processes()
            self._keep_figures()
        if slow or launch.run.state is not LaunchState.SERVING:
            launch.sample()
        if slow:
            launch.look_for_late()
        if launch.keeper is None and launch.run.live:
            self._sweep_rest()
        launch.judge()
        self._give_up()
        if slow:
            self.hangs.tick()
        failing = launch.run.state is LaunchState.FAILING
        if failing and self._ledger_state is not LaunchState.FAILING:
            self.hangs.first_death()
        if not launch.live:
            self._settle()
        before, self._ledger_state = self._ledger_state, launch.run.state
        return self.settled or before is not self._ledger_state

    async def close(self) -> None:
        """Stop watching; the gang is left alone."""
        if self.launch.keeper is not None:
            asyncio.get_running_loop().remove_reader(self.launch.keeper.pidfd)
        await self.hangs.close()
        for task in (self._probe, self._sweep):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def _keep_figures(self) -> None:
        launch = self.launch
        gpus = self._probes.gpus(launch)
        figures = engine_figures(launch.metrics) | gpu_figures(gpus)
        if figures:
            launch.history.add(round(launch.t, 1), figures)
        if gpus and not self._gpus_recorded:
            # Whose GPU is which, and what else holds memory of it.
            self._gpus_recorded = True
            self._probes.record_gpus(launch)

    def _settle(self) -> None:
        self.settled = True
        self.launch.settle()
        if self._probe is not None:
            self._probe.cancel()
        outcome = self.launch.verdict.told if self.launch.verdict else ""
        log.info("launch %d %s: %s", self.launch.spec.id, self.launch.state, outcome)

    def _keeper_ended(self) -> None:
        keeper = self.launch.keeper
        assert keeper is not None
        asyncio.get_running_loop().remove_reader(keeper.pidfd)
        keeper.close()
        self.launch.keeper = None
        self._wake()

    def _answered(self, code: int, ms: float) -> None:
        event = Health(t=self._now(), endpoint=self.launch.engine.health, code=code, ms=ms)
        self.launch.record_event(event)
        self._wake()

    def _give_up(self) -> None:
        """End a launch that can never serve and stays all the same: SGLang loads everything, finds
        its port taken and waits for ever."""
        launch = self.launch
        hopeless = launch.verdict is not None and launch.verdict.kind == "port_in_use"
        if not hopeless or launch.keeper is None or launch.run.state is not LaunchState.LAUNCHING:
            return
        reason = "its port is taken by another process"
        launch.record_event(Gang(t=self._now(), state="failing", reason=reason))
        launch.keeper.signal(SIGTERM)

    def _look_at_gpus(self) -> None:
        """See that nothing of the gang holds a GPU once it is gone; a container may outlive its
        stop, and its processes are not ours."""
        launch = self.launch
        if self._freed or launch.run.live or launch.keeper is not None:
            return
        now = time.monotonic()
        self._ended = now if self._ended is None else self._ended
        held = self._probes.held(launch)
        late = now - self._ended > RELEASE_S
        if late and held and not launch.held:
            for text in held:
                launch.record_event(Alarm(t=self._now(), text=text))
        launch.held = held or () if late else ()
        self._freed = held == () or now - self._ended > LOOK_S
        launch.checking = launch.checking and not late and held != ()

    def _sweep_rest(self) -> None:
        """The keeper is gone and did not say that the gang is down: end what is left."""
        if self._sweep is None:
            spec, folder = self.launch.spec, self.launch.folder.path
            if spec.plan.nodes:
                work = asyncio.to_thread(sweep_nodes, folder, spec.uuid)
            else:
                work = asyncio.to_thread(sweep, spec.uuid)
            self._sweep = asyncio.create_task(work)
            self._sweep.add_done_callback(lambda _: self._wake())
        elif self._sweep.done():
            swept = self._sweep.result()
            reason = f"the keeper ended without a word; {_words(swept)}"
            last = read_tail(self.launch.folder.path / "keeper.log").data.decode(errors="replace")
            if last.strip():
                reason += f"; its last line: {last.strip().splitlines()[-1]}"
            self.launch.record_event(
                Gang(t=self._now(), state="helper_died", reason=reason, alive=swept.left)
            )

    def _now(self) -> float:
        return round(self.launch.t, 6)


def _words(swept: Swept) -> str:
    if swept.left:
        return f"processes {', '.join(map(str, swept.left))} of the gang could not be ended"
    return f"{swept.found} processes of the gang were still there and were ended"
