"""How a launch comes by its sums: what is measured, kept and chosen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from panel.server.checks import _device
from panel.server.memory import Demand
from panel.server.nccl import describe_nccl
from panel.server.options import OptionError, resolve
from tests.server.checkpoints import Checkpoints
from tests.server.support import Nursery
from tests.server.test_memory import V2_LITE, demand


def test_times_in_a_file_are_not_measured_again(
    checkpoints: Checkpoints, nursery: Nursery, tmp_path: Path
) -> None:
    file = tmp_path / "collectives.json"
    flags = {"model_path": checkpoints["v3-tied"].folder, "tp_size": 2, "collectives_file": file}
    with nursery.gang(tmp_path, **flags) as gang:
        measured = gang.wait_started().collectives
        gang.terminate()
    tables = json.loads(file.read_text())
    ((key, lines),) = tables.items()
    assert json.loads(key)["ranks"] == 2
    assert [[path, us] for _, path, us in lines] == [[path, us] for _, path, us in measured]
    file.write_text(json.dumps({key: [[rows, path, 4321.0] for rows, path, _ in lines]}))
    with nursery.gang(tmp_path, **flags) as gang:
        assert {us for _, _, us in gang.wait_started().collectives} == {4321.0}
        gang.terminate()
        assert f"times of the sums are those in {file}" in gang.log("rank-0")
    # Another number of ranks has a table of its own.
    with nursery.gang(tmp_path, **flags | {"tp_size": 4}) as gang:
        assert 4321.0 not in {us for _, _, us in gang.wait_started().collectives}
        gang.terminate()
    assert len(json.loads(file.read_text())) == 2


def test_boxes_are_for_decode_and_verify_steps() -> None:
    flags = {"tp_size": 2, "max_running_requests": 128, "chunked_prefill_size": 8192}
    plain: Demand = demand(V2_LITE, **flags)
    assert plain.sum_path == "auto"
    assert plain.peer_rows == 128
    # Two sets of lines from two ranks, 8 bytes for 4.
    assert plain.box == 2 * 2 * 128 * 2048 * 2 * 2
    drafting = demand(V2_LITE, **flags, speculative_algorithm="ngram", speculative_num_steps=15)
    assert drafting.peer_rows == (2 << 20) // (2048 * 2)
    without = demand(V2_LITE, **flags, allreduce_backend="nccl")
    assert without.box == 0
    assert plain.workspace - without.workspace == plain.box
    assert demand(V2_LITE, tp_size=1).sum_path == "none"


@pytest.mark.parametrize(
    ("gpus", "flags", "device"),
    [
        (0, {}, "cpu"),
        (1, {}, "cpu"),
        (2, {}, "cuda"),
        (2, {"allreduce-backend": "peer"}, "cuda"),
        (1, {"device": "cuda", "allreduce-backend": "peer"}, "cuda"),
        (0, {"device": "cuda", "allreduce-backend": "peer"}, "needs as many GPUs"),
        (1, {"device": "cuda"}, "needs as many GPUs"),
        (1, {"allreduce-backend": "peer"}, "peer does not work on cpu"),
        (2, {"allreduce-backend": "shm"}, "there: auto, nccl, peer"),
    ],
)
def test_ranks_share_a_gpu_only_where_that_is_asked_for(
    gpus: int, flags: dict[str, str], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    options = resolve({"tp-size": "2", **flags})
    if device in ("cpu", "cuda"):
        assert _device(options) == device
    else:
        with pytest.raises(OptionError, match=device):
            _device(options)


def test_two_wheels_of_nccl_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.nccl.version", lambda: (2, 27, 5))
    versions = {"nvidia-nccl-cu12": "2.26.2", "nvidia-nccl-cu13": "2.27.5"}
    monkeypatch.setattr("importlib.metadata.version", versions.__getitem__)
    text = describe_nccl()
    assert text is not None
    assert text.startswith("NCCL 2.27.5 of ")
    assert "nvidia-nccl-cu12 2.26.2 and nvidia-nccl-cu13 2.27.5: these wheels overwrite" in text
