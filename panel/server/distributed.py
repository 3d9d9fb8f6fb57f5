"""Joining torch.distributed, for the collectives that are not ours."""

from __future__ import annotations

import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist


def listening_socket(ranks: int) -> socket.socket:
    """Return a socket for the store through which the ranks meet; make it before the fork."""
    return socket.create_server(("127.0.0.1", 0), backlog=ranks)


def ranks_per_gpu(ranks: int) -> int:
    """Return how many ranks a GPU of this host has; more than one only for tests."""
    return -(-ranks // max(1, torch.cuda.device_count()))


def backend_of(device: torch.device, ranks: int) -> str:
    """Return the backend that serves all collectives; NCCL refuses ranks that share a GPU."""
    return "nccl" if device.type == "cuda" and ranks_per_gpu(ranks) == 1 else "gloo"


def join(backend: str, listening: socket.socket, rank: int, ranks: int, timeout: float) -> None:
    """Join the group of `ranks` processes that inherited `listening`; it is used up.

    `timeout` is in seconds and counts for every later collective too.
    """
    # Sums of a graph would take ways of their own. Ranks that launch a step one by one, in a drill,
    # have to meet those that replay it.
    os.environ.setdefault("NCCL_GRAPH_REGISTER", "0")
    host, port = listening.getsockname()
    descriptor = listening.detach()
    if rank:
        os.close(descriptor)
    limit = timedelta(seconds=timeout)
    store = dist.TCPStore(  # type: ignore[attr-defined]
        host,
        port,
        ranks,
        is_master=rank == 0,
        timeout=limit,
        master_listen_fd=None if rank else descriptor,
    )
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=limit)
