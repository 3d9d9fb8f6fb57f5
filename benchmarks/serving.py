"""The engine alone, for programs that speak to it by its API."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

NO_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
"""Multicast objects of a process that dies badly can put a host's GPUs out of service."""
START_SECONDS = 300.0
COMMAND = "import sys; from panel.server.standalone import main; sys.exit(main(sys.argv[1:]))"


@dataclass(frozen=True)
class Engine:
    """A running one."""

    url: str
    log: Path
    ready: float
    """Seconds from its start."""


@contextmanager
def engine(flags: Sequence[str], log: Path | None = None) -> Iterator[Engine]:
    """Run the engine with these flags; its log is printed where it fails, and kept in `log`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        log = log or Path(folder, "log")
        with log.open("wb") as output:
            command = [sys.executable, "-c", COMMAND, f"--port={port}", *flags]
            process = subprocess.Popen(command, stdout=output, stderr=output)
        url = f"http://127.0.0.1:{port}"
        try:
            yield Engine(url, log, _ready(process, url))
        except (httpx.HTTPError, TimeoutError):
            print(log.read_text()[-6000:], flush=True)
            raise
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _ready(process: subprocess.Popen[bytes], url: str) -> float:
    """Wait; return the seconds that it took."""
    began = time.monotonic()
    while time.monotonic() < began + START_SECONDS:
        if process.poll() is not None:
            raise TimeoutError(f"the engine ended with {process.returncode}")
        try:
            if httpx.get(f"{url}/ready", timeout=5).status_code == 200:
                return time.monotonic() - began
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    raise TimeoutError("the engine was not ready in time")
