"""A live engine with its API, as `moepanel serve` runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.server.support import DEADLINE, free_port, wait_until

SERVE = "import sys; from panel.server.standalone import main; sys.exit(main(sys.argv[1:]))"


@dataclass
class Live:
    """One running engine."""

    port: int
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=DEADLINE) as answer:
            return json.load(answer)

    def post(self, path: str, body: bytes | dict[str, Any]) -> tuple[int, Any]:
        """Return status and JSON of the answer, also where it is an error."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def complete(self, **fields: Any) -> str:
        """Return the text of a greedy completion."""
        body = {"prompt": "The river", "max_tokens": 4, "temperature": 0, **fields}
        status, answer = self.post("/v1/completions", body)
        assert status == 200, answer
        text: str = answer["choices"][0]["text"]
        return text

    def samples(self) -> dict[str, float]:
        """Every sample of `/metrics`, its labels in the name."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=DEADLINE) as answer:
            text = answer.read().decode()
        return {
            sample.name + "".join(f"/{value}" for value in sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def settle(self) -> dict[str, Any]:
        """Wait until nothing runs and no page is in use; return the statistics."""

        def settled() -> bool:
            stats = self.get("/server_info")["stats"]
            return not (stats["running"] or stats["waiting"] or stats["kv_used"])

        wait_until(settled)
        stats: dict[str, Any] = self.get("/server_info")["stats"]
        return stats

    def stop(self) -> int:
        """Ask it to stop; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE)

    def _ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        try:
            return bool(self.get("/ready")["ready"])
        except (urllib.error.URLError, ConnectionError):
            return False

    def wait_ready(self) -> None:
        wait_until(self._ready)


@contextmanager
def live_engine(folder: Path, *flags: str) -> Iterator[Live]:
    """Run an engine of eight ranks on the shipped model; at the end it must be gone."""
    port = free_port()
    log = folder / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE, f"--port={port}", *flags], stderr=output
        )
    live = Live(port, log, process)
    try:
        live.wait_ready()
        yield live
    finally:
        if process.poll() is None:
            live.stop()
