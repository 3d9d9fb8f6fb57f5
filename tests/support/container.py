"""A container runtime of a folder's size: what it runs descends from it, not from who asks.

`container.py serve FOLDER` is the daemon, `run FOLDER WORD …`, `stop FOLDER` and `top FOLDER` are
its client: run relays the output and ends with the container, top prints the process ids.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from panel.supervisor import procfs

LOOK_S = 0.02


def serve(folder: Path) -> None:
    while not (folder / "run").exists():
        time.sleep(LOOK_S)
    with (folder / "output").open("wb") as output:
        words = json.loads((folder / "run").read_text())
        launcher = subprocess.Popen(words, stdout=output, stderr=output, start_new_session=True)
    (folder / "pid").write_text(str(launcher.pid))
    while launcher.poll() is None:
        if (folder / "stop").exists():
            (folder / "stop").unlink()
            launcher.send_signal(signal.SIGTERM)
        time.sleep(LOOK_S)
    (folder / "code").write_text(str(launcher.returncode))
    signal.pause()


def run(folder: Path, words: list[str]) -> int:
    whole = folder / ".run"
    whole.write_text(json.dumps(words))
    whole.rename(folder / "run")
    while not (folder / "output").exists():
        time.sleep(LOOK_S)
    with (folder / "output").open("rb") as output:
        while True:
            ended = (folder / "code").exists()
            if data := output.read():
                os.write(1, data)
            elif ended:
                return abs(int((folder / "code").read_text() or 0))
            time.sleep(LOOK_S)


def top(folder: Path) -> None:
    if (folder / "pid").exists():
        launcher = int((folder / "pid").read_text())
        found = [each for each in procfs.descendants(launcher) if each.state not in "ZX"]
        own = procfs.stat(launcher)
        print(
            "PID", *([launcher] if own and own.state not in "ZX" else []), *(p.pid for p in found)
        )


def main(argv: list[str]) -> None:
    folder = Path(argv[1])
    match argv[0]:
        case "serve":
            serve(folder)
        case "run":
            sys.exit(run(folder, argv[2:]))
        case "stop":
            (folder / "stop").touch()
        case "top":
            top(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
