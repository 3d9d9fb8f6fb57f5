"""`python -m panel.supervisor.fleet`: takes one order on standard input, ends with the gang.

With `--end FOLDER` it ends what another one has left on the nodes; 1 where that is not all.
SIGTERM stops the gang, a second one or SIGINT kills it. Exit codes are those of the other keeper:
0 the gang is down or was never ordered, 1 a folder that cannot be written, 2 no order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

from panel.supervisor import procfs
from panel.supervisor.evidence import Folder, KeeperId, write_json
from panel.supervisor.fleet.fleet import Fleet
from panel.supervisor.fleet.order import FleetOrder
from panel.supervisor.fleet.rest import end_rest


def main() -> int:
    """Run the gang; return the exit code."""
    if sys.argv[1:2] == ["--end"]:
        return 0 if asyncio.run(end_rest(Folder(Path(sys.argv[2])))) else 1
    line = sys.stdin.buffer.readline()
    if not line:
        return 0
    try:
        order = msgspec.json.decode(line, type=FleetOrder)
    except msgspec.DecodeError as error:
        print(f"the order cannot be read: {error}", file=sys.stderr)
        return 2
    folder = Folder(Path(order.folder))
    try:
        log = os.open(folder.path / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 2)
        ticks = procfs.start_ticks(os.getpid()) or 0
        write_json(folder.keeper, KeeperId(os.getpid(), ticks, procfs.boot_id()))
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    asyncio.run(_run(order))
    return 0


async def _run(order: FleetOrder) -> None:
    fleet = Fleet(order)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, fleet.stop)
    loop.add_signal_handler(signal.SIGINT, fleet.kill)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    await fleet.run()


if __name__ == "__main__":
    sys.exit(main())
