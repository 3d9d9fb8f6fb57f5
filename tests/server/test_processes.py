"""The spawner's protocol and `moepanel serve`, with the real front end."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from panel.server.exits import Exit
from panel.server.options import OPTIONS
from panel.server.standalone import main
from tests.server.support import DEADLINE, free_port, wait_until

SERVE = "import sys; from panel.server.standalone import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def spawner() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "panel.server.spawner"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    yield process
    process.communicate(timeout=DEADLINE)


def answer(process: subprocess.Popen[bytes]) -> dict[str, object]:
    assert process.stdout is not None
    reply: dict[str, object] = json.loads(process.stdout.readline())
    return reply


def order(process: subprocess.Popen[bytes], **fields: object) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(fields).encode() + b"\n")
    process.stdin.flush()


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready") as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


def test_a_spawned_gang_outlives_its_spawner_but_not_the_lifeline(
    spawner: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    assert answer(spawner)["ready"] is True
    assert len(os.listdir(f"/proc/{spawner.pid}/task")) == 1
    port = free_port()
    sources = [*(f"rank-{rank}" for rank in range(8)), "frontend"]
    order(
        spawner,
        argv=[f"--port={port}", f"--events-file={tmp_path / 'events.jsonl'}"],
        env={"MOEPANEL_T0_NS": "0"},
        logs={source: str(tmp_path / f"{source}.log") for source in sources},
    )
    pids = answer(spawner)["pids"]
    assert isinstance(pids, dict)
    assert list(pids) == sources
    assert spawner.wait(DEADLINE) == 0
    ends = [os.pidfd_open(pid) for pid in pids.values()]
    wait_until(lambda: ready(port))
    for source, pid in pids.items():
        assert Path(f"/proc/{pid}/comm").read_text() == f"moe-{source}\n"
        assert (tmp_path / f"{source}.log").stat().st_mode & 0o777 == 0o600
    first = json.loads((tmp_path / "events.jsonl").read_text().splitlines()[0])
    assert first["t"] > 60
    assert spawner.stdin is not None
    spawner.stdin.close()
    spawner.stdin = None
    for end in ends:
        assert select.select([end], [], [], DEADLINE)[0]
        os.close(end)


def test_the_spawner_refuses_before_it_forks(spawner: subprocess.Popen[bytes]) -> None:
    answer(spawner)
    order(spawner, argv=["--tp-sise=4"])
    refusal = answer(spawner)
    assert refusal["code"] == Exit.USAGE
    assert "tp-size" in str(refusal["error"])
    assert spawner.wait(DEADLINE) == Exit.USAGE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_stops_cleanly_when_asked(number: int) -> None:
    port = free_port()
    argv = [sys.executable, "-c", SERVE, f"--port={port}", "--tp-size=2"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as process:
        wait_until(lambda: ready(port))
        process.send_signal(number)
        assert process.stderr is not None
        log = process.stderr.read().decode()
        assert process.wait(DEADLINE) == 0
    assert "TP1 stopped] INFO stopped" in log


def test_serve_ends_with_the_code_of_the_rank_that_failed_first() -> None:
    fault = "--fault=rank=1,phase=capture,kind=exit"
    argv = [sys.executable, "-c", SERVE, f"--port={free_port()}", "--tp-size=2", fault]
    done = subprocess.run(argv, stderr=subprocess.PIPE, timeout=DEADLINE, check=False)
    assert done.returncode == 7
    assert b"rank-1" in done.stderr


def test_serve_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"--{option.name} " in text for option in OPTIONS)


def test_serve_refuses_wrong_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--prot=1"]) == Exit.USAGE
    assert "did you mean port" in capsys.readouterr().err
