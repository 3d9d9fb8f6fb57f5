"""The weight keeper from the supervisor's side: started, watched, told to end, seen to end.

It is a child of the supervisor, not of a launch. Its standard input is ours alone: at its end, also
by our death, it ends as soon as no rank uses what it holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from signal import SIGKILL

import msgspec

from panel.config.home import Home
from panel.domain.errors import PanelError
from panel.domain.snapshot import KeptWeights
from panel.server.kept.wire import ADDRESS
from panel.supervisor import procfs
from panel.supervisor.evidence import KeeperId, read_json, write_json
from panel.supervisor.keepers import ROOT, Keeper, PairKey, find_keeper, pair_key
from panel.supervisor.launcher import launch_env
from panel.supervisor.planner import Prepared

log = logging.getLogger(__name__)

FLAG = "keep-weights"
END_S = 10.0
"""From the end of the last launch to a KILL: the driver may be busy with its memory."""


class _Known(msgspec.Struct, frozen=True):
    """`weights.json`: what another supervisor of this home has started."""

    id: KeeperId
    weights: KeptWeights


class Kept:
    """At most one weight keeper; belongs to an event loop."""

    def __init__(self, home: Home, wake: Callable[[], None]) -> None:
        """`wake` is called when something happened that a tick should look at."""
        self._file = home.state / "weights.json"
        self._socket = home.socket.with_name("weights.sock")
        self._log = home.log
        self._wake = wake
        self._process: Keeper | None = None
        self._key: PairKey | None = None
        self._pipes: subprocess.Popen[bytes] | None = None
        self._said = b""
        self._idle_since: float | None = None
        self.weights: KeptWeights | None = None
        """What snapshots show; None where nothing is kept."""

    @property
    def gone(self) -> bool:
        """Whether no weight keeper is there."""
        return self._process is None

    def adopt(self) -> None:
        """Show what an earlier supervisor has left; it is ending, with the launch that uses it."""
        known = read_json(self._file, _Known)
        process = find_keeper(known.id) if known is not None else None
        if known is not None and process is not None:
            self._watch(process)
            self.weights = msgspec.structs.replace(known.weights, leaving=True)

    def fits(self, prepared: Prepared) -> bool:
        """Whether nothing that is kept stands in the way of a launch."""
        if self._process is None:
            return True
        staying = self.weights is not None and not self.weights.leaving
        return staying and _wants(prepared) and self._key == _key(prepared)

    def make_room(self, prepared: Prepared) -> None:
        """Let go of what this launch cannot use."""
        if not self.fits(prepared):
            self.drop(f"the next launch does not use them ({prepared.profile.name})")

    def serve(self, prepared: Prepared) -> dict[str, str]:
        """Return what tells ranks where their weights are kept, if they want to know.

        Raises `PanelError`.
        """
        if not _wants(prepared):
            return {}
        if self._process is None:
            try:
                self._start(prepared)
            except OSError as error:
                raise PanelError(f"the weight keeper cannot be started: {error}") from None
        return {ADDRESS: str(self._socket)}

    def drop(self, reason: str) -> None:
        """Let go of the weights once no rank uses them."""
        if self._pipes is None or self.weights is None:
            return
        log.info("weight keeper %d is told to end: %s", self.weights.pid, reason)
        assert self._pipes.stdin is not None
        self._pipes.stdin.close()
        self._note(msgspec.structs.replace(self.weights, leaving=True))

    def tick(self, running: bool) -> None:
        """End by force what does not end; `running`: a launch may still use it."""
        leaving = self.weights is not None and self.weights.leaving
        if self._process is None or running or not leaving:
            self._idle_since = None
            return
        now = time.monotonic()
        self._idle_since = self._idle_since or now
        if now - self._idle_since > END_S:
            log.error("weight keeper %d does not end: killed", self._process.pid)
            self._process.signal(SIGKILL)
            self._idle_since = now

    async def close(self, running: bool) -> None:
        """Let go, and see it end unless a launch that runs on still uses it."""
        self.drop("the supervisor ends")
        process = self._process
        if process is None:
            return
        self._unwatch()
        if running:
            if self._pipes is not None:
                # It ends with the launch: nobody is going to wait for it.
                self._pipes.returncode = 0
        elif self._pipes is not None:
            try:
                await asyncio.to_thread(self._pipes.wait, END_S)
            except subprocess.TimeoutExpired:
                process.signal(SIGKILL)
            await asyncio.to_thread(process.close)
            self._forget()

    def _start(self, prepared: Prepared) -> None:
        env = os.environ | launch_env(prepared.engine, prepared.profile)
        self._socket.unlink(missing_ok=True)
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
            self._log.open("ab") as errors,
        ):
            # Bound by us, it answers from the first moment; our umask makes it this user's alone.
            listener.bind(str(self._socket))
            self._socket.chmod(0o600)
            listener.listen(128)
            self._pipes = subprocess.Popen(
                [sys.executable, "-m", "panel.server.kept", str(listener.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=env,
                cwd=ROOT,
                pass_fds=(listener.fileno(),),
                start_new_session=True,
            )
        pid = self._pipes.pid
        self._key = _key(prepared)
        self._said = b""
        self._watch(Keeper(pid, os.pidfd_open(pid), self._pipes))
        assert self._pipes.stdout is not None
        os.set_blocking(self._pipes.stdout.fileno(), False)
        asyncio.get_running_loop().add_reader(self._pipes.stdout.fileno(), self._read)
        self._note(KeptWeights(pid=pid))
        log.info("weight keeper %d started", pid)

    def _watch(self, process: Keeper) -> None:
        self._process = process
        asyncio.get_running_loop().add_reader(process.pidfd, self._ended)

    def _unwatch(self) -> None:
        loop = asyncio.get_running_loop()
        if self._process is not None:
            loop.remove_reader(self._process.pidfd)
        if self._pipes is not None and self._pipes.stdout is not None:
            loop.remove_reader(self._pipes.stdout.fileno())
            self._pipes.stdout.close()

    def _ended(self) -> None:
        assert self._process is not None
        log.info("weight keeper %d has ended", self._process.pid)
        self._unwatch()
        if self._pipes is not None and self._pipes.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._pipes.stdin.close()
        self._process.close()
        self._forget()
        self._wake()

    def _forget(self) -> None:
        self._process = self._pipes = self._key = self.weights = None
        for path in (self._file, self._socket):
            path.unlink(missing_ok=True)

    def _read(self) -> None:
        """Take in what it says of itself."""
        assert self._pipes is not None
        assert self._pipes.stdout is not None
        said = self._pipes.stdout.read()
        if not said:
            # Its end shows at the pidfd.
            asyncio.get_running_loop().remove_reader(self._pipes.stdout.fileno())
            return
        *lines, self._said = (self._said + said).split(b"\n")
        if lines and self.weights is not None:
            figures = msgspec.json.decode(lines[-1], type=dict[str, int])
            self._note(msgspec.structs.replace(self.weights, **figures))
        self._wake()

    def _note(self, weights: KeptWeights) -> None:
        self.weights = weights
        ticks = procfs.start_ticks(weights.pid) or 0
        known = KeeperId(weights.pid, ticks, procfs.boot_id())
        with contextlib.suppress(OSError):
            write_json(self._file, _Known(known, weights))


def _wants(prepared: Prepared) -> bool:
    """Whether a launch asks for its weights to be kept."""
    ours = bool(prepared.engine.spawner)
    return ours and prepared.values.get(FLAG, "").lower() == "true"


def _key(prepared: Prepared) -> PairKey:
    return pair_key((), launch_env(prepared.engine, prepared.profile))
