"""Drills and refusals: what a process ends with, and what its log says."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import msgspec
import pytest

from panel.server.exits import Exit
from panel.server.heartbeat import HeartbeatFile
from panel.server.messages import Generate
from panel.server.phases import Phase
from tests.server.checkpoints import Checkpoints
from tests.server.support import Nursery, wait_until


@pytest.fixture
def folder(checkpoints: Checkpoints) -> Path:
    return checkpoints["v3-tied"].folder


@pytest.mark.parametrize(
    ("kind", "code", "text"),
    [
        ("assert", Exit.FAILED, "AssertionError"),
        ("exception", Exit.FAILED, "RuntimeError: drill"),
        ("oom", Exit.MEMORY, "MemoryError"),
        ("segv", -signal.SIGSEGV, "Segmentation fault"),
        ("kill", -signal.SIGKILL, "drill: kill"),
        ("exit", 7, "drill: exit"),
        ("partial-traceback", -signal.SIGKILL, "Traceback (most recent call last)"),
    ],
)
def test_a_drill_ends_its_rank_and_the_others_name_it(
    kind: str, code: int, text: str, folder: Path, nursery: Nursery, tmp_path: Path
) -> None:
    fault = f"rank=2,phase=capture,kind={kind}"
    with nursery.gang(tmp_path, model_path=folder, tp_size=4, fault=fault) as gang:
        codes = gang.wait_exits()
        assert gang.exits[0] == ("rank-2", code)
        assert [codes[f"rank-{rank}"] for rank in (0, 1, 3)] == [Exit.PEER] * 3
        assert text in gang.log("rank-2")
        assert f"rank 2 (pid {gang.pids['rank-2']}) is gone" in gang.log("rank-1")


@pytest.mark.parametrize(
    "phase", ["args", "spawn", "import", "dist_init", "weights", "workspace", "draft", "kv_cache",
              "capture", "warmup", "ready", "serving"]
)  # fmt: skip
def test_a_drill_fires_in_any_phase(
    phase: str, folder: Path, nursery: Nursery, tmp_path: Path
) -> None:
    fault = f"rank=1,phase={phase},kind=assert,after=0"
    with nursery.gang(tmp_path, model_path=folder, tp_size=2, fault=fault) as gang:
        codes = gang.wait_exits()
        assert codes["rank-1"] == Exit.FAILED
        assert codes["rank-0"] == Exit.PEER
        lines = gang.log("rank-1").splitlines()
        assert f"TP1 {phase}] ERROR AssertionError" in lines[-1]
        assert all(line.startswith("[") for line in lines)


def test_a_drill_fires_while_draining(folder: Path, nursery: Nursery, tmp_path: Path) -> None:
    fault = "rank=1,phase=draining,kind=assert"
    with nursery.gang(tmp_path, model_path=folder, tp_size=2, fault=fault) as gang:
        gang.wait_started()
        gang.signal("rank-0", signal.SIGTERM)
        assert gang.wait_exits()["rank-1"] == Exit.FAILED


def test_a_hanging_rank_is_named_after_the_time_limit(
    folder: Path, nursery: Nursery, tmp_path: Path
) -> None:
    fault = "rank=1,phase=serving,kind=hang,after=0"
    with nursery.gang(tmp_path, model_path=folder, tp_size=4, fault=fault, peer_timeout=1) as gang:
        gang.send(Generate("x", [1, 2, 3], 5))
        assert gang.wait_exits(4) == {
            "rank-0": Exit.PEER, "rank-2": Exit.PEER, "rank-3": Exit.PEER, "frontend": 0,
        }  # fmt: skip
        assert any(
            f"rank 1 (pid {gang.pids['rank-1']}) has not answered" in gang.log(f"rank-{rank}")
            for rank in (0, 2, 3)
        )


def test_a_slow_rank_only_takes_time(folder: Path, nursery: Nursery, tmp_path: Path) -> None:
    fault = "rank=1,phase=serving,kind=slow,after=0"
    with nursery.gang(tmp_path, model_path=folder, tp_size=2, fault=fault) as gang:
        gang.wait_started()
        answer = gang.generate(Generate("x", [1, 2, 3], 3, temperature=0))[0]
        assert len(answer.tokens) == 3
        assert gang.wait_stats().step_ms > 900


def test_nan_ends_requests_with_an_error_and_is_reported(
    folder: Path, nursery: Nursery, tmp_path: Path
) -> None:
    fault = "rank=1,phase=serving,kind=nan,after=0"
    with nursery.gang(tmp_path, model_path=folder, tp_size=2, fault=fault) as gang:
        gang.wait_started()
        last = gang.generate(Generate("x", [1, 2, 3], 3))[0].last
        assert last.finish == "error"
        assert "NaN" in (last.error or "")
        assert "NaN" in gang.log("rank-0")
        assert "first not finite in layer 0, attention, on rank 1\n" in gang.log("rank-0")
        assert set(gang.terminate().values()) == {0}


def test_without_its_keeper_a_gang_ends_itself(
    folder: Path, nursery: Nursery, tmp_path: Path
) -> None:
    with nursery.gang(tmp_path, model_path=folder, tp_size=4) as gang:
        gang.wait_started()
        os.close(gang.lifeline)
        gang.lifeline = -1
        codes = gang.wait_exits()
        # Whoever sees its peers die before it looks at the pipe says so instead.
        assert set(codes.values()) <= {Exit.ORPHAN, Exit.PEER}
        assert Exit.ORPHAN in codes.values()
        assert "keeper is gone" in "".join(gang.log(source) for source in gang.pids)


def test_a_lost_front_end_ends_the_ranks(folder: Path, nursery: Nursery, tmp_path: Path) -> None:
    with nursery.gang(tmp_path, model_path=folder, tp_size=2) as gang:
        gang.wait_started()
        gang.signal("frontend", signal.SIGKILL)
        codes = gang.wait_exits()
        assert codes == {"frontend": -9, "rank-0": Exit.PEER, "rank-1": Exit.PEER}
        assert "the front end is gone" in gang.log("rank-0")


def test_sigterm_while_starting_ends_cleanly(
    folder: Path, nursery: Nursery, tmp_path: Path
) -> None:
    fault = "rank=0,phase=weights,kind=slow,after=30"
    with nursery.gang(tmp_path, model_path=folder, tp_size=2, fault=fault) as gang:
        wait_until(lambda: all("loading" in gang.log(f"rank-{rank}") for rank in (0, 1)))
        assert set(gang.terminate().values()) == {0}


def test_events_and_heartbeats_tell_the_phases(
    folder: Path, nursery: Nursery, tmp_path: Path
) -> None:
    events, beats = tmp_path / "events.jsonl", tmp_path / "beats"
    with nursery.gang(
        tmp_path, model_path=folder, tp_size=2, events_file=events, heartbeat_file=beats
    ) as gang:
        started = gang.wait_started()
        heartbeats = HeartbeatFile(beats, 2)
        first = heartbeats.read(1)
        wait_until(lambda: heartbeats.read(1).step >= first.step + 2)
        assert heartbeats.read(1).phase is Phase.SERVING
        assert heartbeats.read(1).pid == gang.pids["rank-1"]
        assert heartbeats.read(1).age() < 2
        heartbeats.close()
        assert set(gang.terminate().values()) == {0}
    written = [json.loads(line) for line in events.read_text().splitlines()]
    for rank in (0, 1):
        mine = [event for event in written if event["rank"] == rank]
        phases = [event["phase"] for event in mine if event["kind"] == "phase"]
        assert phases == [str(phase) for phase in Phase]
        memory = next(event for event in mine if event["kind"] == "memory")
        table = msgspec.to_builtins(started.memory[rank])
        assert {name: memory[name] for name in table} == table
    assert set(started.phases) >= {"weights", "capture", "warmup"}


def refusal(nursery: Nursery, folder: Path, **flags: object) -> tuple[int, str]:
    with nursery.gang(folder, **flags) as gang:
        assert gang.refusal is not None
        return gang.refusal["code"], gang.refusal["error"]


def test_a_taken_port_is_refused(folder: Path, nursery: Nursery, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, text = refusal(nursery, tmp_path, model_path=folder, port=port)
    assert code == Exit.PORT
    assert str(port) in text
    assert "--port" in text


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"tp_size": 3}, "8 attention heads; fitting: 1, 2, 4, 8"),
        ({"tp_size": 8, "ep_size": 3}, "does not divide tp-size 8; fitting: 1, 2, 4, 8"),
        ({"tp_size": 4, "fault": "rank=9,phase=capture,kind=assert"}, "ranks are 0 to 3"),
        ({"tp_size": 2, "fault": "rank=0,phase=captur,kind=assert"}, "did you mean capture"),
        ({"tp_size": 2, "fault": "rank=0,phase=capture,kind=bang"}, "partial-traceback"),
        ({"tp_size": 2, "fault": "rank=0,phase=serving,kind=illegal-access"}, "take segv"),
        ({"tp_size": 2, "device": "cuda"}, "needs as many GPUs"),
        ({"tp_size": 2, "allreduce_backend": "nccl"}, "does not work on cpu"),
        ({"tp_size": 2, "speculative_ngram_min": 9}, "is above"),
    ],
)
def test_flags_that_cannot_work_are_refused(
    flags: dict[str, object], text: str, folder: Path, nursery: Nursery, tmp_path: Path
) -> None:
    code, error = refusal(nursery, tmp_path, model_path=folder, **flags)
    assert code == Exit.USAGE
    assert text in error
    assert "\n" not in error


def test_a_missing_model_is_refused(nursery: Nursery, tmp_path: Path) -> None:
    code, text = refusal(nursery, tmp_path, model_path=tmp_path / "nowhere")
    assert code == Exit.MODEL
    assert "nowhere" in text


def test_a_truncated_file_is_refused(folder: Path, nursery: Nursery, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "config.json").write_bytes((folder / "config.json").read_bytes())
    whole = (folder / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    code, text = refusal(nursery, tmp_path, model_path=copy)
    assert code == Exit.MODEL
    assert "model.safetensors" in text


def test_a_file_that_does_not_fit_the_config_names_the_tensor(
    folder: Path, nursery: Nursery, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    config = json.loads((folder / "config.json").read_text()) | {"moe_intermediate_size": 64}
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with nursery.gang(tmp_path, model_path=copy, tp_size=2) as gang:
        assert set(gang.wait_exits().values()) <= {Exit.MODEL, Exit.PEER, 0}
        assert Exit.MODEL in dict(gang.exits).values()
        logs = gang.log("rank-0") + gang.log("rank-1")
    line = next(line for line in logs.splitlines() if "ERROR" in line)
    for word in ("model.safetensors", "experts.0.gate_proj.weight", "[32, 64]", "[64, 64]"):
        assert word in line


def test_no_room_for_the_cache_ends_with_the_memory_code(
    folder: Path, nursery: Nursery, tmp_path: Path
) -> None:
    with nursery.gang(
        tmp_path, model_path=folder, tp_size=2, max_total_tokens=64, page_size=256
    ) as gang:
        codes = gang.wait_exits()
    assert codes["rank-0"] == codes["rank-1"] == Exit.MEMORY
    assert "no room for one page" in gang.log("rank-0")


def test_gloo_serves_the_same_text(folder: Path, nursery: Nursery, tmp_path: Path) -> None:
    texts = []
    for backend in ("shm", "gloo"):
        with nursery.gang(
            tmp_path, model_path=folder, tp_size=2, allreduce_backend=backend
        ) as gang:
            started = gang.wait_started()
            assert {path for _, path, _ in started.collectives} == {backend}
            request = Generate("x", [5, 6, 7], 8, temperature=0)
            texts.append(gang.generate(request)[0].tokens)
            assert set(gang.terminate().values()) == {0}
    assert texts[0] == texts[1]
