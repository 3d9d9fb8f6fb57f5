"""A launch's sums over peers and, where they are too large, over another path; in real ranks."""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="triton has wheels for Linux on x86-64 only")

import tests.kernels.interpreting  # noqa: F401
from panel.kernels.boxes import Boxes
from panel.server.checks import prepare
from panel.server.collectives import join_group
from panel.server.cuda import peers
from panel.server.distributed import listening_socket
from panel.server.gang import place_of
from panel.server.options import resolve
from panel.server.place import Place
from panel.server.sums import make_sums
from tests.support.forked import forked

RANKS = 2


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Place]]:
    """The places of ranks that take each other for GPUs, which reach each other's memory."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = {"tp-size": RANKS, "port": port, "max-running-requests": 3, "device": "cpu"}
    gang = prepare(resolve({name: str(value) for name, value in flags.items()}))
    gang.listener.close()
    gang = replace(gang, options=replace(gang.options, allreduce_backend="peer"))
    store = listening_socket(RANKS)
    found = [place_of(gang, rank, store) for rank in range(RANKS)]
    size = found[0].demand.box
    memory = mmap.mmap(-1, RANKS * size)
    boxes = torch.frombuffer(memory, dtype=torch.uint8).view(RANKS, size)

    def open_boxes(rows: int, _: int, *rest: object) -> Boxes:
        addresses = torch.tensor([box.data_ptr() for box in boxes])
        rank = gang.shared.roster.rank
        return Boxes(addresses, torch.zeros(rows, dtype=torch.int32), rank, programs=8)

    monkeypatch.setattr(peers, "open_boxes", open_boxes)
    monkeypatch.setattr("torch.cuda.device_count", lambda: RANKS)
    yield found
    store.close()


def use(place: Place) -> None:
    """Be a rank."""
    rank, most = place.shard.rank, place.demand.peer_rows
    place.shared.roster.join(rank, os.getpid(), step_of=lambda: 0, interrupted=lambda: None)
    join_group(place)
    with torch.inference_mode():
        reduction, nbytes, measured = make_sums(place)
        row = place.config.hidden_size * place.dtype.itemsize
        assert [(size // row, path) for size, path, _ in measured] == [
            (1, "peer"),
            (3, "peer"),
            (512, "gloo"),
        ]
        # What is measured on one rank is measured on all.
        times = sum(round(us * 1e3) for _, _, us in measured)
        assert len(set(place.shared.votes.all(times, place.shared.roster))) == 1
        assert nbytes == place.demand.box + reduction.part(515).nbytes
        for rows in (1, most, most + 1, 40):
            reduction.part(rows).fill_(rank + 1)
            hidden = torch.ones(rows, place.config.hidden_size)
            assert reduction.add_sum_(hidden).eq(1 + 1 + 2).all()


def test_each_rank_takes_the_same_path_for_each_size(places: list[Place]) -> None:
    assert forked(RANKS, lambda rank: use(places[rank])) == [0, 0]
