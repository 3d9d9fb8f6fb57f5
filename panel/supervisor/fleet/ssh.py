"""The way to another node: the system's ssh runs one command there and forwards one Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from pathlib import Path

import msgspec

from panel.domain.errors import PanelError, TimedOutError
from panel.supervisor import procfs
from panel.supervisor.fleet.order import NodeOrder
from panel.supervisor.start import answers

_OPTIONS = (
    "-T",
    "-oBatchMode=yes",
    "-oConnectTimeout=10",
    "-oExitOnForwardFailure=yes",
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
    "-oStreamLocalBindUnlink=yes",
)
_REACH_S = 45.0
_FORWARD_S = 20.0
_LOOK_S = 0.05
_RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)
_NO_PROGRAM = 127


class Reached(msgspec.Struct, frozen=True):
    """What `panel.supervisor.reach` said on the node."""

    socket: str
    version: str
    started: bool
    """We have started its supervisor."""


async def reach(node: NodeOrder) -> Reached:
    """Return where the node's supervisor listens; start it where it does not run.

    Raises `PanelError` with the way out.
    """
    words = [*shlex.split(node.python), "-m", "panel.supervisor.reach"]
    env = {name: text for name, text in os.environ.items() if name not in _MARKERS}
    if node.ssh:
        home = [f"MOEPANEL_HOME={node.home}"] if node.home else []
        # The shell there splits what it gets; a home that begins with ~ is its to expand.
        command = " ".join([*home, "exec", *map(shlex.quote, words)])
        argv = ["ssh", *_OPTIONS, *_destination(node), command]
    else:
        argv, env = words, env | {"MOEPANEL_HOME": node.home}
    code, said, errors = await _run(argv, env, node.name)
    try:
        if code == 0:
            return msgspec.json.decode(said.strip().splitlines()[-1], type=Reached)
    except (msgspec.DecodeError, IndexError):
        errors = errors or said
    raise _unreachable(node, code, errors.decode(errors="replace").strip())


class Forward:
    """A local socket that leads to the supervisor of a node; kept until it is closed."""

    def __init__(self, node: NodeOrder, remote: str, local: Path) -> None:
        self._node = node
        self._remote = remote
        self._keeping: asyncio.Task[None] | None = None
        self._ssh: asyncio.subprocess.Process | None = None
        self.trouble = ""
        """What ssh said last, while there is no way."""
        self.socket = local if node.ssh else Path(remote)

    async def open(self) -> None:
        """Return once somebody answers there. Raises `PanelError`."""
        if not self._node.ssh:
            return
        self._keeping = asyncio.create_task(self._keep())
        deadline = asyncio.get_running_loop().time() + _FORWARD_S
        while not (self.socket.exists() and answers(self.socket)):
            if self.trouble or asyncio.get_running_loop().time() > deadline:
                raise _unreachable(self._node, 255, self.trouble or "the socket is not forwarded")
            await asyncio.sleep(_LOOK_S)

    async def close(self) -> None:
        """End ssh."""
        if self._keeping is not None:
            self._keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeping

    async def _keep(self) -> None:
        attempt = 0
        while True:
            began = asyncio.get_running_loop().time()
            await self._forward()
            if asyncio.get_running_loop().time() - began > _RETRY_S[-1]:
                attempt = 0
            await asyncio.sleep(_RETRY_S[min(attempt, len(_RETRY_S) - 1)])
            attempt += 1

    async def _forward(self) -> None:
        """Run ssh until it ends."""
        self.socket.unlink(missing_ok=True)
        way = f"{self.socket}:{self._remote}"
        try:
            ssh = await asyncio.create_subprocess_exec(
                "ssh", *_OPTIONS, "-N", "-L", way, *_destination(self._node),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
        except OSError as error:
            self.trouble = f"ssh: {error.strerror}"
            return
        try:
            _, errors = await ssh.communicate()
            lines = errors.decode(errors="replace").strip().splitlines()
            self.trouble = lines[-1] if lines else f"ssh ended with {ssh.returncode}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                ssh.terminate()
            await ssh.wait()


def _destination(node: NodeOrder) -> list[str]:
    """Return the words that ssh takes: its options, if there are any, and the destination."""
    try:
        return shlex.split(node.ssh)
    except ValueError as error:
        raise PanelError(
            f"node {node.name}: ssh = {node.ssh!r}: {error}", "quote it as a shell takes it"
        ) from None


_MARKERS = (procfs.LAUNCH_MARKER, procfs.KEEPER_MARKER)
"""What is started here is not of the gang: a node's supervisor outlives it."""


async def _run(argv: list[str], env: dict[str, str], name: str) -> tuple[int, bytes, bytes]:
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise PanelError(f"node {name}: {argv[0]}: {error.strerror}") from None
    try:
        async with asyncio.timeout(_REACH_S):
            said, errors = await process.communicate()
    except TimeoutError:
        raise TimedOutError(
            f"node {name} does not answer in {_REACH_S:.0f} s", f"try: {shlex.join(argv)}"
        ) from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    return process.returncode or 0, said, errors


def _unreachable(node: NodeOrder, code: int, said: str) -> PanelError:
    last = said.splitlines()[-1] if said else f"exit code {code}"
    where = f"node {node.name}" + (f" ({node.ssh})" if node.ssh else "")
    if "No module named" in last or code == _NO_PROGRAM:
        return PanelError(
            f"{where} has no moepanel: {last}",
            f"install it there, or set python under that node (now {node.python})",
        )
    if node.ssh and code == 255:
        return PanelError(
            f"{where} cannot be reached: {last}",
            f"ssh {node.ssh} must work without a password or question from here",
        )
    return PanelError(f"{where}: {last}", "see supervisor.log there")
