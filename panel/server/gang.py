"""Fork the front end and the ranks of a gang."""

from __future__ import annotations

import gc
import logging
import os
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import torch

from panel.server.checks import Gang
from panel.server.config import ModelError
from panel.server.distributed import listening_socket
from panel.server.exits import Exit
from panel.server.heartbeat import HeartbeatFile
from panel.server.options import Options
from panel.server.parallel import shard_of
from panel.server.phases import Phase
from panel.server.place import Place
from panel.server.rank import run_rank
from panel.server.reporting import setup

log = logging.getLogger(__name__)

FrontEnd = Callable[[Options, socket.socket, socket.socket, HeartbeatFile], int]
"""(options, socket to rank 0, listening socket of the API, heartbeats) to an exit code."""


def fork_gang(
    gang: Gang, frontend: FrontEnd, logs: dict[str, str], lifeline: int, keep: int | None = None
) -> dict[str, int]:
    """Fork the ranks and the front end; return process ids by source name.

    `logs` maps source names to files that take a process's output; a source without one keeps this
    process's standard error. `lifeline` is the read end of a pipe: at its end of file each process
    ends itself. `keep` is the write end, where this process holds it.
    """
    options = gang.options
    api_end, engine_end = socket.socketpair()
    store = store_socket(gang)

    def rank_main(rank: int) -> int:
        api_end.close()
        gang.listener.close()
        if rank:
            engine_end.close()
        place = place_of(gang, rank, store)
        return run_rank(place, os.getpid(), None if rank else engine_end, gang.fault)

    def frontend_main() -> int:
        engine_end.close()
        if store is not None:
            store.close()
        setup("API", options.log_level, phase_of=lambda: Phase.SPAWN)
        return frontend(options, api_end, gang.listener, gang.shared.heartbeats)

    mains: dict[str, Callable[[], int]] = {
        f"rank-{rank}": partial(rank_main, rank) for rank in range(options.tp_size)
    }
    mains["frontend"] = frontend_main
    gc.collect()
    gc.freeze()
    pids = {}
    for source, main in mains.items():
        pids[source] = os.fork()
        if pids[source] == 0:
            if keep is not None:
                os.close(keep)
            _live(source, main, logs.get(source), lifeline)
    for end in (api_end, engine_end, gang.listener, store):
        if end is not None:
            end.close()
    return pids


def place_of(gang: Gang, rank: int, store: socket.socket | None) -> Place:
    """Return what `rank` is given. Ranks share GPUs only where `prepare` lets them."""
    gpu = rank % max(1, torch.cuda.device_count())
    return Place(
        options=gang.options,
        config=gang.config,
        folder=gang.folder,
        shard=shard_of(gang.options, rank),
        device=torch.device(f"cuda:{gpu}" if gang.device == "cuda" else "cpu"),
        dtype=gang.dtype,
        shared=gang.shared,
        events=gang.events,
        location=gang.location,
        draft=gang.draft,
        store=store,
    )


def store_socket(gang: Gang) -> socket.socket | None:
    """Return a bound socket for the store of torch.distributed, where that is used."""
    chosen = (gang.options.allreduce_backend, gang.options.moe_a2a_backend)
    if gang.options.tp_size == 1 or (gang.device == "cpu" and "gloo" not in chosen):
        return None
    return listening_socket(gang.options.tp_size)


def _live(source: str, main: Callable[[], int], log_path: str | None, lifeline: int) -> NoReturn:
    """Be the process `source` from the fork to the end."""
    code = int(Exit.FAILED)
    try:
        _redirect(log_path)
        Path("/proc/self/comm").write_text(f"moe-{source}")
        threading.Thread(target=_watch_lifeline, args=(lifeline,), daemon=True).start()
        code = main()
    except ModelError as error:
        log.error("%s", error)
        code = Exit.MODEL
    except BaseException as error:
        log.exception("%s ended by an exception", source)
        code = Exit.MEMORY if _out_of_memory(error) else Exit.FAILED
    finally:
        # Whatever the parent had registered to run at its own end is not this process's business.
        os._exit(code)


def _redirect(log_path: str | None) -> None:
    if log_path is None:
        os.dup2(2, 1)
        return
    descriptor = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _watch_lifeline(lifeline: int) -> NoReturn:
    while os.read(lifeline, 1):
        pass
    log.error("the keeper is gone; this process ends itself")
    os._exit(Exit.ORPHAN)


def _out_of_memory(error: BaseException) -> bool:
    """True for the ways in which Python and torch say that an allocation failed."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if error.__cause__ is not None and _out_of_memory(error.__cause__):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
