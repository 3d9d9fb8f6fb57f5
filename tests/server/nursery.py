"""A warm process that forks gangs for the tests: the spawner with a scripted front end.

Reads orders from its Unix socket: JSON `{"argv", "logs"}` with three descriptors: the far end of
the engine's socket, the lifeline, and the pipe for exits. For each it forks a parent of one gang,
which writes `{"pids": ...}` or `{"error", "code"}` and then `{"exit": [source, code]}` in the order
in which the processes end.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
from typing import Any

from panel.server.spawner import preload


def relay(connection: socket.socket, far: socket.socket) -> int:
    """Carry bytes between rank 0 and the test until one side ends."""

    def carry(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    thread = threading.Thread(target=carry, args=(far, connection), daemon=True)
    thread.start()
    carry(connection, far)
    return 0


def parent(order: dict[str, Any], far: socket.socket, lifeline: int, exits: int) -> None:
    """Fork one gang and report how its processes end."""
    from panel.server.checks import RefusedError, prepare
    from panel.server.gang import fork_gang
    from panel.server.options import parse

    def say(answer: dict[str, object]) -> None:
        os.write(exits, (json.dumps(answer) + "\n").encode())

    try:
        gang = prepare(parse(order["argv"]))
    except RefusedError as refused:
        say({"error": str(refused), "code": int(refused.code)})
        return
    pids = fork_gang(gang, lambda o, engine, *rest: relay(engine, far), order["logs"], lifeline)
    far.close()
    os.close(lifeline)
    say({"pids": pids})
    poll = select.epoll()
    names = {}
    for name, pid in pids.items():
        descriptor = os.pidfd_open(pid)
        names[descriptor] = (name, pid)
        poll.register(descriptor, select.EPOLLIN)
    while names:
        for descriptor, _ in poll.poll():
            name, pid = names.pop(descriptor)
            poll.unregister(descriptor)
            status = os.waitpid(pid, 0)[1]
            say({"exit": [name, os.waitstatus_to_exitcode(status)]})


def main() -> None:
    """Serve orders until the socket closes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    orders = socket.socket(fileno=int(sys.argv[1]))
    preload()
    while True:
        data, fds, _, _ = socket.recv_fds(orders, 1 << 16, 3)
        if not data:
            return
        if os.fork() == 0:
            orders.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            parent(json.loads(data), socket.socket(fileno=fds[0]), fds[1], fds[2])
            os._exit(0)
        for descriptor in fds:
            os.close(descriptor)


if __name__ == "__main__":
    main()
