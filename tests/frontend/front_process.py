"""`python front_process.py ENGINE_FD LISTENER_FD HEARTBEATS FLAG...`: the front end alone."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from panel.server.frontend import run
from panel.server.heartbeat import HeartbeatFile
from panel.server.options import parse


def main() -> int:
    """Run the front end on inherited sockets."""
    engine, listener, heartbeats, *flags = sys.argv[1:]
    options = parse(flags)
    return run(
        options,
        socket.socket(fileno=int(engine)),
        socket.socket(fileno=int(listener)),
        HeartbeatFile(Path(heartbeats), options.tp_size),
    )


if __name__ == "__main__":
    sys.exit(main())
