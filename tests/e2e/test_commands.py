"""The commands against the real supervisor, keeper and eight-rank engine."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import httpx
import psutil
import pytest

from tests.e2e.conftest import Node, same_greedy_text

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

PROMPT = "The history of the world is"


def test_launch_toggle_and_stop(node: Node) -> None:
    """EP and n-gram speculation serve the same greedy text; `down` and `shutdown` leave nothing."""
    up = node.json("up", "--wait")
    assert up["ready"] is True
    assert [rank["rank"] for rank in up["ranks"]] == list(range(8))
    plain = node.greedy(PROMPT)
    assert len("".join(token for token, _ in plain).split()) > 5

    node.ok("relaunch", "--set", "ep-size=8", "--wait")
    assert "ep8" in node.json("status")["launch"]["chips"]
    assert same_greedy_text(plain, node.greedy(PROMPT))

    node.ok("relaunch", "--set", "speculative-algorithm=ngram", "--wait")
    assert same_greedy_text(plain, node.greedy(PROMPT))
    gang = [process["pid"] for process in node.json("status")["launch"]["processes"]]

    history = node.json("history")
    assert [row["state"] for row in history] == ["serving", "stopped", "stopped"]
    differences = {row["name"] for row in node.json("diff", "1", "3")["changes"]}
    assert differences == {"ep-size", "speculative-algorithm"}

    node.ok("down")
    assert not [pid for pid in gang if psutil.pid_exists(pid)]
    assert node.json("history", "--limit", "1")[0]["state"] == "stopped"
    node.ok("shutdown")
    assert node.processes() == []


def test_stream(node: Node) -> None:
    """`/v1/completions` streams English text as server-sent events."""
    node.ok("up", "--wait")
    pieces = []
    body = {"model": "moe-tiny", "prompt": PROMPT, "max_tokens": 24, "stream": True}
    with httpx.stream("POST", f"{node.url}/v1/completions", json=body, timeout=60) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                pieces.append(json.loads(line[6:])["choices"][0]["text"])
    assert len(pieces) > 8
    words = "".join(pieces).split()
    assert sum(word.strip(".,;:'\"").isalpha() for word in words) > len(words) / 2


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("rank=3,phase=capture,kind=assert", "AssertionError"),
        ("rank=5,phase=weights,kind=kill", "SIGKILL"),
        ("rank=6,phase=kv_cache,kind=segv", "SIGSEGV"),
        ("rank=1,phase=warmup,kind=exit", "exit code"),
    ],
)
def test_drill_names_the_rank(node: Node, fault: str, words: str) -> None:
    """A rank that fails in its start is named with its exit in words; the command exits 1."""
    failed = node.run("up", "--set", f"fault={fault}", "--wait")
    rank = fault[5]
    assert failed.returncode == 1
    assert f"rank {rank}" in failed.stdout + failed.stderr
    assert words in failed.stdout + failed.stderr
    launch = node.json("status")["launch"]
    assert launch["state"] == "crashed"
    assert launch["verdict"]["root_ranks"] == [int(rank)]
    assert launch["verdict"]["final"] is True
    assert f"rank {rank}" in node.ok("status")


def test_supervisor_killed_and_adopted(node: Node) -> None:
    """`kill -9` of the supervisor leaves the engine serving; the next one has lost nothing."""
    node.ok("up", "--wait")
    before = node.json("status")
    os.kill(before["supervisor"]["pid"], signal.SIGKILL)
    psutil.wait_procs([psutil.Process(before["supervisor"]["pid"])], timeout=5)
    assert node.run("status").returncode == 3
    assert node.complete(PROMPT)

    assert node.run("up").returncode == 2
    after = node.json("status")
    assert after["supervisor"]["pid"] != before["supervisor"]["pid"]
    assert after["launch"]["uuid"] == before["launch"]["uuid"]
    assert after["launch"]["state"] == "serving"
    assert [p["pid"] for p in after["launch"]["processes"]] == [
        p["pid"] for p in before["launch"]["processes"]
    ]
    node.ok("down")


@pytest.mark.parametrize("command", ["down", "shutdown"])
def test_what_outlived_its_supervisor_can_be_stopped(node: Node, command: str) -> None:
    """`status` says that the launch goes on; `down` and `shutdown` adopt it and stop it."""
    node.ok("up", "--wait")
    supervisor = psutil.Process(node.json("status")["supervisor"]["pid"])
    supervisor.kill()
    psutil.wait_procs([supervisor], timeout=5)
    lost = node.run("status")
    assert lost.returncode == 3
    assert "#1" in lost.stderr
    node.ok(command)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{node.url}/health")


def test_refused_relaunch_harms_nothing(node: Node, tmp_path: Path) -> None:
    """Whatever cannot work is refused in one line, and the running gang keeps serving."""
    node.ok("up", "--wait")
    pids = [process["pid"] for process in node.json("status")["launch"]["processes"]]
    for setting, code, named in [
        ("ep-siz=8", 2, "ep-size"),
        ("ep-size=many", 2, "whole number"),
        ("tp-size=3", 1, "tp-size"),
        ("ep-size=5", 1, "ep-size"),
        (f"model-path={tmp_path / 'nowhere'}", 1, "nowhere"),
    ]:
        refused = node.run("relaunch", "--set", setting, "--wait")
        assert refused.returncode == code, setting
        assert named in refused.stderr
        assert "Traceback" not in refused.stderr
    assert [p["pid"] for p in node.json("status")["launch"]["processes"]] == pids
    assert node.complete(PROMPT, tokens=4)


def test_port_taken(node: Node) -> None:
    """A port that somebody else holds is named before anything starts."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", node.port))
        other.listen()
        refused = node.run("up", "--wait")
    assert refused.returncode == 1
    assert str(node.port) in refused.stderr


def test_keeper_killed(node: Node) -> None:
    """Without its keeper the gang ends by itself, and the panel says what happened."""
    node.ok("up", "--wait")
    launch = node.json("status")["launch"]
    folder = node.home / "launches" / f"{launch['id']:06d}"
    keeper = json.loads((folder / "keeper.json").read_text())
    os.kill(keeper["pid"], signal.SIGKILL)
    gang = [psutil.Process(p["pid"]) for p in launch["processes"] if psutil.pid_exists(p["pid"])]
    _, alive = psutil.wait_procs(gang, timeout=15)
    assert alive == []
    ended = node.run("down", "--json")
    assert ended.returncode in (0, 3)
    assert node.json("status")["launch"]["state"] == "lost"


def test_without_supervisor(node: Node) -> None:
    """Commands that need a supervisor say so; those that read files work."""
    assert node.run("status").returncode == 3
    assert node.run("down").returncode == 3
    assert node.json("history") == []
    assert node.run("logs").returncode == 3
