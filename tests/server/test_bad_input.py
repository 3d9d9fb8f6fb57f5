"""Input that nobody should send: an answer or back-pressure, never a dead rank."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from tests.server.live import Live, live_engine

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
RUNNING, WAITING = 4, 60


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    flags = (f"--max-running-requests={RUNNING}", f"--max-queued-requests={WAITING}")
    with live_engine(tmp_path_factory.mktemp("live"), *flags) as live:
        text = live.complete()
        yield live
        assert live.complete() == text
        assert live.settle()["kv_used"] == 0
        assert live.stop() == 0
        log = live.log.read_text()
        assert "every page is accounted for" in log
        assert "ERROR" not in log
        assert "Traceback" not in log


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (COMPLETIONS, b"", 400, "not valid JSON"),
        (COMPLETIONS, b'{"prompt": "a"', 400, "not valid JSON"),
        (COMPLETIONS, b'{"prompt": "a"}}', 400, "not valid JSON"),
        (COMPLETIONS, b"[1, 2]", 400, "Expected `object`"),
        (COMPLETIONS, b'{"prompt": "\xff\xfe"}', 400, "not valid JSON"),
        (COMPLETIONS, b'{"prompt": "\\ud800"}', 400, "not valid JSON"),
        (COMPLETIONS, b'{"prompt": {"a": 1}}', 400, "prompt"),
        (COMPLETIONS, b'{"prompt": null}', 400, "prompt"),
        (COMPLETIONS, b'{"prompt": []}', 400, "prompt"),
        (COMPLETIONS, b'{"prompt": [1e99]}', 400, "prompt"),
        (COMPLETIONS, b'{"prompt": [99999999999999999999]}', 400, "vocabulary"),
        (COMPLETIONS, b'{"prompt": "a", "max_tokens": 1e400}', 400, "Number out of range"),
        (COMPLETIONS, b'{"prompt": "a", "max_tokens": 9223372036854775807}', 400, "max_tokens"),
        (COMPLETIONS, b'{"prompt": "a", "max_tokens": -1}', 400, "max_tokens"),
        (COMPLETIONS, b'{"prompt": "a", "max_tokens": "many"}', 400, "max_tokens"),
        (COMPLETIONS, b'{"prompt": "a", "temperature": NaN}', 400, "not valid JSON"),
        (COMPLETIONS, b'{"prompt": "a", "seed": 1e30}', 400, "seed"),
        (COMPLETIONS, b'{"prompt": "a", "priority": 1000000}', 400, "priority"),
        (COMPLETIONS, b'{"prompt": "a", "repetition_penalty": 0}', 400, "repetition_penalty"),
        (COMPLETIONS, b'{"prompt": "a", "model": "gpt-5"}', 404, "is not served here"),
        (COMPLETIONS, b'{"prompt": "a", "n": 128}', 400, "may run and wait"),
        (CHAT, b'{"messages": []}', 400, "messages"),
        (CHAT, b'{"messages": [{"role": "user", "content": 5}]}', 400, "content"),
        (CHAT, b'{"messages": "hello"}', 400, "messages"),
        ("/abort_request", b"\x00", 400, "not valid JSON"),
    ],
)
def test_nonsense_is_refused_with_the_reason(
    live: Live, path: str, body: bytes, status: int, words: str
) -> None:
    code, answer = live.post(path, body)
    assert code == status, answer
    assert words in answer["error"]["message"]


def test_nesting_without_end_is_refused(live: Live) -> None:
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    body = (
        b'{"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": ' + deep + b"}"
    )
    code, answer = live.post(CHAT, body)
    assert (code, answer["error"]["code"]) == (400, "invalid_json")


def test_an_empty_prompt_is_the_beginning_of_a_text(live: Live) -> None:
    assert live.complete(prompt="") != ""


def test_long_prompts_are_refused_before_they_are_read(live: Live) -> None:
    for prompt in ("a" * 3_000_000, [5] * 500_000):
        code, answer = live.post(COMPLETIONS, {"prompt": prompt})
        assert (code, answer["error"]["code"]) == (400, "context_length_exceeded")


def test_a_body_of_ten_megabytes_is_refused(live: Live) -> None:
    code, answer = live.post(COMPLETIONS, {"prompt": "a" * 10_000_000})
    assert code == 413
    assert "4194304 bytes" in answer["error"]["message"]
    assert live.complete(prompt="a")


def test_what_is_no_http_is_hung_up_on(live: Live) -> None:
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as wire:
        wire.sendall(b"\x16\x03\x01\x02\x00\x01" * 100 + b"\r\n\r\n")
        assert b" 400 " in wire.recv(1000)


def test_a_body_that_never_comes_holds_up_nobody(live: Live) -> None:
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as wire:
        wire.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert live.complete()


def test_a_client_that_never_reads_holds_up_nobody(live: Live) -> None:
    body = {
        "prompt": "a", "max_tokens": 1500, "stream": True, "ignore_eos": True, "logprobs": 20,
        "temperature": 2.0,
    }  # fmt: skip
    data = json.dumps(body).encode()
    wires = []
    for _ in range(2):
        wire = socket.socket()
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.connect(("127.0.0.1", live.port))
        wire.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n")
        wire.sendall(f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        wires.append(wire)
    text = live.complete(max_tokens=40)
    assert live.complete(max_tokens=40) == text
    wires[0].close()
    assert live.complete(max_tokens=40) == text
    wires[1].close()
    live.settle()
