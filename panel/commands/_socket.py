"""The supervisor's HTTP API with the standard library: importing httpx alone takes 0.2 s."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import TypeVar

import msgspec

from panel.domain.errors import NotFoundError, PanelError, TimedOutError
from panel.domain.snapshot import Snapshot
from panel.domain.wire import ApiError, ErrorReply

T = TypeVar("T")

_ANSWER_S = 30.0
_ASKING = ("/v1/flags", "/v1/plan", "/v1/up", "/v1/relaunch")
_ASKING_S = 180.0
"""For what needs the engine's flags: the first time an engine is imported to ask its parser."""
_SILENCE_S = 12.0
"""An event stream says something every five seconds."""


class _Connection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("node")
        self._path = path
        self.wire = socket.socket(socket.AF_UNIX)

    def connect(self) -> None:
        self.sock = self.wire
        self.wire.connect(str(self._path))


class Client:
    """Requests to the supervisor behind one socket. Every failure is a `PanelError`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, target: str, kind: type[T]) -> T:
        """Return the answer to `GET target`."""
        return self._ask("GET", target, None, kind)

    def post(self, target: str, body: msgspec.Struct, kind: type[T]) -> T:
        """Return the answer to `POST target`."""
        return self._ask("POST", target, msgspec.json.encode(body), kind)

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot."""
        return self.get("/v1/snapshot", Snapshot)

    def snapshots(self, seconds: float | None = None) -> Iterator[Snapshot]:
        """Yield the present snapshot and each later one.

        Raises `TimedOutError` after `seconds`, `NotFoundError` when the supervisor goes away.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        connection, response = self._send("GET", "/v1/events?since=0", None)
        try:
            while True:
                left = _SILENCE_S if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise TimedOutError(f"not there after {seconds:g} s")
                connection.wire.settimeout(min(left, _SILENCE_S))
                line = response.readline()
                if line.startswith(b"data:"):
                    yield msgspec.json.decode(line[5:], type=Snapshot)
                elif not line:
                    raise _gone()
        except TimeoutError:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimedOutError(f"not there after {seconds:g} s") from None
            raise _gone() from None
        except (OSError, HTTPException):
            raise _gone() from None
        finally:
            response.close()
            connection.close()

    def _ask(self, method: str, target: str, body: bytes | None, kind: type[T]) -> T:
        connection, response = self._send(method, target, body)
        try:
            content = response.read()
        except (OSError, HTTPException):
            raise _gone() from None
        finally:
            connection.close()
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.DecodeError as error:
            raise PanelError(
                f"the supervisor's answer is not understood: {error}",
                "it is of another version: moepanel shutdown, then again",
            ) from None

    def _send(
        self, method: str, target: str, body: bytes | None
    ) -> tuple[_Connection, HTTPResponse]:
        connection = _Connection(self._path)
        patience = _ASKING_S if target.startswith(_ASKING) else _ANSWER_S
        connection.wire.settimeout(patience)
        headers = {"content-type": "application/json"} if body else {}
        try:
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            if response.status < 400:
                return connection, response
            refusal = _told(response.status, response.read())
        except TimeoutError:
            connection.close()
            raise PanelError(
                f"the supervisor did not answer in {patience:g} s", "see supervisor.log"
            ) from None
        except (OSError, HTTPException):
            connection.close()
            raise NotFoundError("no supervisor runs", "moepanel up starts one") from None
        connection.close()
        raise refusal


def _gone() -> NotFoundError:
    return NotFoundError(
        "the supervisor went away", "a running engine goes on; moepanel up starts a supervisor"
    )


def _told(status: int, body: bytes) -> PanelError:
    try:
        told = msgspec.json.decode(body, type=ErrorReply).error
    except msgspec.DecodeError:
        told = ApiError(kind="failed", message=f"the supervisor answered {status}")
    error = PanelError(told.message, told.hint)
    error.kind, error.exit_code, error.status = told.kind, told.exit, status
    return error
