"""The rank table of a launch over several nodes."""

from __future__ import annotations

import msgspec
import pytest

from panel.domain.snapshot import Snapshot
from panel.domain.states import LaunchState, ProcessState
from panel.widgets.glyphs import UNICODE
from panel.widgets.node_rows import still_held
from panel.widgets.rank_rows import ranks
from panel.widgets.spans import Tone, cells
from tests.screens import stage
from tests.widgets.test_gpu_words import gpu


def snapshot() -> Snapshot:
    processes = tuple(
        msgspec.structs.replace(each, node="gpu-a" if (each.rank or 0) < 4 else "a-long-name-of-b")
        for each in stage.ranks()
    )
    return stage.snapshot(stage.launch(LaunchState.SERVING, processes=processes))


@pytest.mark.parametrize("width", [80, 120, 200])
def test_each_rank_has_its_node_and_its_figures(width: int) -> None:
    seen = snapshot()
    assert seen.launch is not None
    head, *rows = ranks(seen, seen.launch, width, UNICODE)
    texts = ["".join(span.text for span in row) for row in (head, *rows)]
    assert "node" in texts[0]
    assert all(word in texts[0] for word in ("cpu", "rss"))
    assert all(f"{20 + rank}% " in text for rank, text in enumerate(texts[1:9]))
    assert "no GPU" in texts[0]
    assert all("gpu-a" in text for text in texts[1:5])
    assert all("a-long-name" in text for text in texts[5:9])
    assert all(cells(row) <= width for row in (head, *rows))
    assert len({text.index("decode running") for text in texts[1:9]}) == 1


@pytest.mark.parametrize("width", [80, 120, 200])
def test_gpus_of_other_nodes_stand_beside_their_ranks(width: int) -> None:
    seen = snapshot()
    # Each node counts its GPUs from 0; one of this node's serves nobody here.
    gpus = tuple(gpu(rank % 4, rank=rank, memory_used=rank << 30, memory_total=96 << 30)
                 for rank in range(8))  # fmt: skip
    seen = msgspec.structs.replace(seen, gpus=(gpu(0, rank=None),), elsewhere=gpus)
    assert seen.launch is not None
    head, *rows = ranks(seen, seen.launch, width, UNICODE)
    texts = ["".join(span.text for span in row) for row in (head, *rows)]
    assert "pcie rx/tx" in texts[0]
    assert all(f" {rank}/96G" in text for rank, text in enumerate(texts[1:9]))
    assert all("gpu-a:" in text for text in texts[1:5])
    assert all(cells(row) <= width for row in (head, *rows))


def test_what_still_holds_a_gpu_has_a_row_of_its_own() -> None:
    held = tuple(f"GPU {index} is still held by rank {index} (pid 7, 71.0 GiB)" for index in (1, 2))
    stopped = stage.launch(LaunchState.STOPPED, held=held)
    rows = still_held(stopped, 80, UNICODE)
    assert ["".join(span.text for span in row).strip() for row in rows] == [
        f"! {text}" for text in held
    ]
    assert all(cells(row) <= 40 for row in still_held(stopped, 40, UNICODE))
    assert still_held(stage.launch(LaunchState.STOPPED), 80, UNICODE) == []


def test_a_rank_that_a_signal_stopped_is_marked() -> None:
    processes = tuple(
        msgspec.structs.replace(each, stopped=each.rank == 6, state=ProcessState.STALE)
        for each in stage.ranks()
    )
    launch = stage.launch(LaunchState.SERVING, processes=processes)
    rows = ranks(stage.snapshot(launch), launch, 80, UNICODE)[1:]
    marked = [n for n, row in enumerate(rows) if "stopped (state T)" in row[-1].text]
    assert (marked, rows[6][-1].tone) == ([6], Tone.BAD)
