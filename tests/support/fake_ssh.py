"""Stands in for ssh: `[options] DESTINATION COMMAND` or `-N -L LOCAL:REMOTE DESTINATION`.

A destination is a folder below `FAKE_SSH`: its `MOEPANEL_HOME`. The command runs here; the socket's
bytes are carried by this process. A file `gone` in the folder makes the destination unreachable.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from pathlib import Path

LOOK_S = 0.05


def refuse(destination: str) -> None:
    print(f"ssh: connect to host {destination} port 22: No route to host", file=sys.stderr)
    os._exit(255)


def carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def forward(local: str, remote: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(local)
        listener.listen()
        while True:
            near, _ = listener.accept()
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(remote)
            except OSError:
                near.close()
                continue
            for pair in ((near, far), (far, near)):
                threading.Thread(target=carry, args=pair, daemon=True).start()


def main(argv: list[str]) -> None:
    ways = [argv[at + 1] for at, word in enumerate(argv) if word == "-L"]
    words = [word for word in argv if not word.startswith("-") and word not in ways]
    folder = Path(os.environ["FAKE_SSH"], words[0])
    if not folder.is_dir() or (folder / "gone").exists():
        refuse(words[0])
    if ways:
        threading.Thread(target=forward, args=ways[0].split(":"), daemon=True).start()
        while not (folder / "gone").exists():
            time.sleep(LOOK_S)
        refuse(words[0])
    os.chdir("/")
    env = os.environ | {"MOEPANEL_HOME": str(folder)}
    os.execvpe("/bin/sh", ["sh", "-c", words[1]], env)


if __name__ == "__main__":
    main(sys.argv[1:])
