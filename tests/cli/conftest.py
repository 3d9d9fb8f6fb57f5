"""A supervisor that speaks the documented API from a script, over a real Unix socket."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from panel.cli import main
from panel.config.home import find_home
from panel.domain.snapshot import Snapshot
from panel.domain.wire import ApiError, ErrorReply


class FakeSupervisor(socketserver.ThreadingUnixStreamServer):
    """Answers requests from `answers`, streams `script`, notes what was asked."""

    daemon_threads = False

    def __init__(self, path: Path) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.script: list[Snapshot] = []
        self.requests: list[tuple[str, Any]] = []
        self.ends_stream = False
        self.over = threading.Event()
        super().__init__(str(path), _Handler)

    def answer(self, request: str, value: Any, status: int = 200) -> None:
        """Answer `METHOD /path` with a struct."""
        self.answers[request] = status, value

    def refuse(self, request: str, status: int, **error: Any) -> None:
        """Answer `METHOD /path` with an error."""
        self.answer(request, ErrorReply(error=ApiError(**error)), status)

    def show(self, *snapshots: Snapshot) -> None:
        """Stream these snapshots, and answer with the last one."""
        self.script = list(snapshots)
        self.answer("GET /v1/snapshot", snapshots[-1])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeSupervisor

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        if self.path.startswith("/v1/events"):
            self._stream()
        else:
            self._answer(None)

    def do_POST(self) -> None:
        self._answer(msgspec.json.decode(self.rfile.read(int(self.headers["content-length"]))))

    def _answer(self, body: Any) -> None:
        request = f"{self.command} {self.path}"
        self.server.requests.append((request, body))
        status, value = self.server.answers[request]
        content = value if isinstance(value, bytes) else msgspec.json.encode(value)
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self._chunk(b": hello\n\n")
        for shown in self.server.script:
            data = msgspec.json.encode(shown)
            self._chunk(b"event: snapshot\nid: 1\n")
            self._chunk(b"data: " + data + b"\n\n")
        if not self.server.ends_stream:
            self.server.over.wait(30)
        self.close_connection = True

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


@pytest.fixture
def supervisor(home: Path) -> Iterator[FakeSupervisor]:
    """A scripted supervisor of the test's home."""
    found = find_home()
    found.prepare()
    with FakeSupervisor(found.socket) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def moepanel(home: Path) -> Callable[..., Result]:
    """Run a command in this process."""
    return lambda *words: CliRunner().invoke(main, words, catch_exceptions=False)
