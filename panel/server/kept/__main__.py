"""`python -m panel.server.kept FD`: the weight keeper; `FD` is its listening socket.

It prints a line of JSON with its figures whenever they change. At the end of its standard input, or
on SIGTERM, it ends as soon as no rank uses what it holds. Its memory ends with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading

from panel.server.kept.keeper import WeightKeeper

_STDIN, _STDOUT = 0, 1


class _ToldError(Exception):
    """SIGTERM arrived."""


def main(argv: list[str]) -> int:
    """Keep weights until told to end; return the exit code."""
    listener = socket.socket(fileno=int(argv[0]))
    keeper = WeightKeeper(_say)
    threading.Thread(target=_accept, args=(listener, keeper), daemon=True).start()

    def on_term(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _ToldError

    signal.signal(signal.SIGTERM, on_term)
    # A keyboard's interrupt is for the launch, and the supervisor passes on what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(_ToldError):
        while os.read(_STDIN, 4096):
            pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    keeper.end()
    return 0


def _accept(listener: socket.socket, keeper: WeightKeeper) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=keeper.serve, args=(connection,), daemon=True).start()


def _say(figures: dict[str, int]) -> None:
    # The supervisor may be gone, which the end of standard input tells as well.
    with contextlib.suppress(OSError):
        os.write(_STDOUT, json.dumps(figures).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
