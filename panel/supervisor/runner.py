"""The one launch that may run: started, stopped, adopted, and its row of the ledger kept true."""

from __future__ import annotations

import logging
from collections.abc import Callable
from signal import SIGINT, SIGTERM
from typing import Literal

from panel.config.home import Home
from panel.domain.errors import PanelError
from panel.domain.events import Gang, Operator
from panel.domain.states import LaunchState
from panel.engines.base import Engine
from panel.supervisor.adopt import load_launch
from panel.supervisor.keepers import Pair, pair_key
from panel.supervisor.kept import Kept
from panel.supervisor.launch import Launch
from panel.supervisor.launcher import launch_env, next_number, prepare_launch
from panel.supervisor.ledger import Ledger
from panel.supervisor.planner import Basis, Prepared
from panel.supervisor.probes import Probes
from panel.supervisor.warm import Warm
from panel.supervisor.watcher import Watcher

log = logging.getLogger(__name__)

Action = Literal["down", "down_now", "relaunch", "shutdown"]


class Runner:
    """The present launch, or the last one."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        warm: Warm,
        kept: Kept,
        probes: Probes,
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called when something happened that a tick should look at."""
        self._home = home
        self._ledger = ledger
        self._warm = warm
        self._kept = kept
        self._probes = probes
        self._wake = wake
        self._watcher: Watcher | None = None
        self._basis: Basis | None = None

    @property
    def launch(self) -> Launch | None:
        """What snapshots show."""
        return self._watcher.launch if self._watcher else None

    @property
    def running(self) -> Launch | None:
        """The launch as long as anything of it may exist."""
        launch = self.launch
        return launch if launch is not None and launch.live else None

    @property
    def watcher(self) -> Watcher | None:
        """What watches the present launch."""
        return self._watcher

    @property
    def basis(self) -> Basis | None:
        """What the next request is measured against."""
        if self._basis is None or self.running is None:
            return self._basis
        return self._basis._replace(address=self.running.address)

    def adopt(self, find_engine: Callable[[str], Engine]) -> None:
        """Take over the last launch of the ledger, running or not."""
        for record in self._ledger.recent(1):
            usual = self._ledger.usual_ready_s(record.request.profile)
            try:
                launch = load_launch(self._home, record, find_engine, usual)
            except PanelError as error:
                log.error("launch %d cannot be shown: %s", record.id, error)
                return
            if launch is None:
                return
            self._basis = Basis(record.request, record.flags, None)
            self._watcher = Watcher(launch, None, self._probes, self._wake)
            if launch.keeper is not None:
                log.info("launch %d adopted, keeper %d", record.id, launch.keeper.pid)

    def new_number(self) -> int:
        """Return the number of the next launch."""
        last = max(self._ledger.last_id(), self.launch.spec.id if self.launch else 0)
        return next_number(self._home, last)

    def start(self, number: int, prepared: Prepared) -> None:
        """Launch; what goes wrong on the way is the launch's own end. Raises `PanelError`."""
        usual = self._ledger.usual_ready_s(prepared.profile.name)
        told = self._kept.serve(prepared)
        try:
            pair = self._pair(prepared)
        except OSError as error:
            raise PanelError(f"the keeper cannot be started: {error}") from None
        good = self._ledger.last_good(prepared.profile.name)
        prelude = prepare_launch(self._home, number, prepared, pair.uuid, good, told)
        launch = Launch(
            prelude.spec, prelude.folder, prepared.engine, pair.keeper, usual_ready_s=usual
        )
        try:
            prelude.write()
            self._ledger.put(launch.record())
            pair.order(prelude.line())
        except (OSError, PanelError) as error:
            log.error("launch %d cannot start: %s", number, error)
            pair.drop()
            launch.record_event(Gang(t=0.0, state="refused", reason=f"cannot start: {error}"))
            launch.record_event(Gang(t=0.0, state="down"))
        else:
            log.info("launch %d: %s %s", number, prepared.profile.name, " ".join(prelude.spec.argv))
        self._basis = Basis(prepared.request, prelude.spec.plan.values(), None)
        api_key = prepared.engine.api_key(prepared.values)
        self._watcher = Watcher(launch, api_key, self._probes, self._wake)

    def _pair(self, prepared: Prepared) -> Pair:
        env = launch_env(prepared.engine, prepared.profile)
        if prepared.profile.nodes:
            return Pair(pair_key((), env), self._home.log, "panel.supervisor.fleet")
        return self._warm.take(prepared.engine.spawner, env)

    def stop(self, action: Action) -> Launch | None:
        """Tell the gang to end; return its launch, None where nothing runs."""
        launch = self.running
        if launch is None:
            return None
        log.info("launch %d: %s", launch.spec.id, action)
        stopping = launch.run.state is LaunchState.STOPPING
        launch.record_event(Operator(t=round(launch.t, 6), action=action))
        # The keeper takes a second TERM for impatience, and kills.
        if launch.keeper is not None and (action == "down_now" or not stopping):
            launch.keeper.signal(SIGINT if action == "down_now" else SIGTERM)
        return launch

    def tick(self) -> None:
        """Look at what is due."""
        if self._watcher is not None and self._watcher.tick():
            launch = self._watcher.launch
            try:
                self._ledger.put(launch.record())
            except PanelError as error:
                log.error("%s", error)
                launch.note = f"not in the ledger: {error}"

    async def close(self) -> None:
        """Stop watching; a gang that runs is left serving."""
        if self._watcher is not None:
            await self._watcher.close()
