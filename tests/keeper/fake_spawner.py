"""Follows the spawner's protocol and forks processes that behave as their flag says.

Flags of the order: SOURCE=BEHAVIOUR, or one flag on how the spawner itself behaves.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time


def say(**message: object) -> None:
    print(json.dumps(message), flush=True)


def log(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def behave(behaviour: str, predecessor: int) -> None:
    name, _, detail = behaviour.partition(":")
    if name == "ignore-term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif name == "drain":
        signal.signal(signal.SIGTERM, drain)
    elif name == "chain":
        pidfd = os.pidfd_open(predecessor)
        log("ready")
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.poll()
        os._exit(int(detail))
    elif name == "orphan":
        leave_orphan()
    elif name == "lifeline":
        log("ready")
        os.read(0, 1)
        log("eof")
        os._exit(14)
    elif name == "exit":
        os._exit(int(detail))
    log("ready")
    while True:
        signal.pause()


def drain(*_: object) -> None:
    log("drained")
    os._exit(0)


def leave_orphan() -> None:
    """Start a grandchild that ignores TERM, in a session of its own, without its parent."""
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            log(f"orphan {os.getpid()}")
            while True:
                signal.pause()
        os._exit(0)
    os.wait()


def redirect(path: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


def main() -> None:
    if "--dead" in sys.argv:
        sys.exit("no torch here")
    say(ready=True)
    line = sys.stdin.buffer.readline()
    if not line:
        return
    order = json.loads(line)
    os.environ.update(order["env"])
    answers = os.dup(1)
    redirect(order["logs"]["spawner"])
    match order["argv"][0]:
        case "refuse":
            log("a warning that is not the reason")
            os.write(answers, b'{"error": "--tp-size 3 does not divide 8 heads", "code": 2}\n')
            os._exit(2)
        case "die":
            log("Traceback\nImportError: api_key=sk-1234567890abcdef")
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            log("hanging")
            while True:
                time.sleep(1)
    pids: dict[str, int] = {}
    pid = 0
    for flag in order["argv"]:
        source, behaviour = flag.split("=")
        predecessor, pid = pid, os.fork()
        if pid == 0:
            os.close(answers)
            redirect(order["logs"][source])
            behave(behaviour, predecessor)
        pids[source] = pid
    os.write(answers, json.dumps({"pids": pids}).encode() + b"\n")


main()
