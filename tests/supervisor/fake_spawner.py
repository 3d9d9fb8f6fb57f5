"""Follows the spawner's protocol; its ranks and front end leave the evidence that real ones do.

Without torch a launch takes a fraction of a second. Drills: kinds assert, kill and exit.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from panel.server import reporting
from panel.server.exits import Exit
from panel.server.faults import parse_fault
from panel.server.heartbeat import HeartbeatFile
from panel.server.life import Life
from panel.server.options import Options, parse
from panel.server.phases import ORDER, Phase

TICK_S = 0.05
TOKENS_A_SECOND = 100


def rank_main(options: Options, rank: int) -> None:
    assert options.heartbeat_file
    beats = HeartbeatFile(Path(options.heartbeat_file), options.tp_size)
    fault = parse_fault(options.fault, options.tp_size) if options.fault else None
    life = Life(rank, beats, reporting.Events(options.events_file), fault)
    reporting.setup(
        reporting.rank_tag(rank, options.tp_size, 1), "info", phase_of=lambda: life.phase
    )
    try:
        for phase in ORDER[: ORDER.index(Phase.SERVING) + 1]:
            life.enter(phase, f"in {phase}")
        while not stopped():
            life.tick()
    except AssertionError:
        reporting.logging.getLogger().exception("it ends here")
        os._exit(Exit.FAILED)
    life.enter(Phase.STOPPED, "stopped")
    os._exit(Exit.OK)


def frontend_main(options: Options) -> None:
    reporting.setup("FE", "info", phase_of=lambda: "serving")
    assert options.heartbeat_file
    beats = HeartbeatFile(Path(options.heartbeat_file), options.tp_size)
    started = time.monotonic()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            ready = all(beat.phase is Phase.SERVING for beat in beats.read_all())
            made = int((time.monotonic() - started) * TOKENS_A_SECOND)
            body = (
                f"moepanel_generation_tokens_total {made}\n"
                "moepanel_requests_running 2\nmoepanel_kv_capacity_tokens 1000\n"
            ).encode()
            self.send_response(200 if ready else 503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer((options.host, options.port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    reporting.logging.info("listening")
    while not stopped():
        pass
    os._exit(Exit.OK)


def stopped() -> bool:
    """Wait for a tick; True after TERM. Ends the process where the keeper is gone."""
    if select.select([0], [], [], TICK_S)[0]:
        os._exit(Exit.ORPHAN)
    return signal.SIGTERM in signal.sigpending()


def become(path: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def main() -> None:
    print(json.dumps({"ready": True}), flush=True)
    line = os.read(0, 1 << 16)
    if not line:
        return
    order = json.loads(line)
    os.environ.update(order["env"])
    options = parse(order["argv"])
    assert options.heartbeat_file
    HeartbeatFile(Path(options.heartbeat_file), options.tp_size, create=True).close()
    pids = {}
    for source, path in order["logs"].items():
        if source == "spawner":
            continue
        pid = os.fork()
        if pid == 0:
            become(path)
            if source == "frontend":
                frontend_main(options)
            rank_main(options, int(source.removeprefix("rank-")))
        pids[source] = pid
    print(json.dumps({"pids": pids}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
