"""`python -m panel.supervisor.keeper [--spawner JSON-argv]`: the keeper's process.

Exit codes: 0 the gang ended or was never ordered, 1 a fault, 2 wrong usage or a broken order.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from functools import partial

from panel.supervisor import procfs
from panel.supervisor.keeper import linux
from panel.supervisor.keeper.abandon import abandon
from panel.supervisor.keeper.children import Children
from panel.supervisor.keeper.descent import kill, remaining
from panel.supervisor.keeper.journal import note
from panel.supervisor.keeper.keeper import Keeper
from panel.supervisor.keeper.loop import Loop
from panel.supervisor.keeper.order import Order, OrderError, read_order
from panel.supervisor.keeper.spawner import Spawner
from panel.supervisor.keeper.waiting import Waiting

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


def main(argv: list[str]) -> int:
    """Wait for an order and keep its gang; return the exit code."""
    if argv and (len(argv) != 2 or argv[0] != "--spawner"):
        note("usage: python -m panel.supervisor.keeper [--spawner JSON-argv]")
        return 2
    os.umask(0o077)
    linux.become_subreaper()
    loop = Loop()
    loop.catch(SIGNALS)
    children = Children(loop)
    marker = os.urandom(16).hex()
    spawner = None
    if argv:
        env = os.environ | {procfs.KEEPER_MARKER: marker}
        spawner = Spawner(loop, children, json.loads(argv[1]), env)
        spawner.news = partial(announce, spawner)
    try:
        line = Waiting(loop, children).line()
        return keep(read_order(line), marker, loop, children, spawner) if line else 0
    except OrderError as error:
        note(f"the order is broken: {error}")
        return 2
    finally:
        kill(remaining({procfs.KEEPER_MARKER: marker}))


def announce(spawner: Spawner) -> None:
    """Tell whoever waits to give the order that it would be obeyed at once."""
    if spawner.ready:
        with suppress(OSError):
            os.write(1, b'{"ready": true}\n')


def keep(order: Order, marker: str, loop: Loop, children: Children, spawner: Spawner | None) -> int:
    """Keep the gang of `order` to its end."""
    markers = {procfs.LAUNCH_MARKER: order.uuid, procfs.KEEPER_MARKER: marker}
    try:
        settle(order.folder, marker)
        if spawner is not None and order.spawner is None:
            spawner.leave()
        keeper = Keeper(order, markers, loop, children, spawner)
    except OSError as error:
        note(f"cannot write the evidence of the launch, so nothing was started: {error}")
        return 1
    try:
        keeper.run()
    except Exception:
        sys.excepthook(*sys.exc_info())
        abandon(keeper.events, markers, order.policy.grace_s)
        return 1
    return 0


def settle(folder: str, marker: str) -> None:
    """Say who keeps this launch, and turn all further words to its `keeper.log`. Raises OSError."""
    identity = {
        "pid": os.getpid(),
        "start_ticks": procfs.start_ticks(os.getpid()),
        "boot_id": procfs.boot_id(),
        "marker": marker,
    }
    path = os.path.join(folder, "keeper.json")
    with open(f"{path}.new", "w") as file:
        json.dump(identity, file)
    os.replace(f"{path}.new", path)
    with open(os.path.join(folder, "keeper.log"), "ab") as log, open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
