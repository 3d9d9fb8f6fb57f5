"""What can be refused before any process of the gang exists."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from panel.server.config import ModelConfig, ModelError, model_folder, read_config
from panel.server.draft.find import draft_shape
from panel.server.draft.shape import DraftShape
from panel.server.exits import Exit
from panel.server.faults import Fault, Kind, parse_fault
from panel.server.kept.wire import ADDRESS
from panel.server.location import Table, initial_location
from panel.server.memory import Demand
from panel.server.options import OptionError, Options
from panel.server.parallel import shard_of
from panel.server.reporting import Events
from panel.server.shared import Shared, make_shared
from panel.server.sizes import settled
from panel.server.split import check_split
from panel.server.weights import SafetensorsSource


class RefusedError(Exception):
    """The gang cannot be started; nothing was forked."""

    def __init__(self, code: Exit, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Gang:
    """Checked and ready to fork."""

    options: Options
    folder: Path
    config: ModelConfig
    location: Table
    draft: DraftShape | None
    device: str
    dtype: torch.dtype
    fault: Fault | None
    shared: Shared
    events: Events
    listener: socket.socket


def prepare(options: Options) -> Gang:
    """Check the flags against model, machine and port, or raise `RefusedError`."""
    try:
        folder = model_folder(options.model_path)
        config = read_config(folder)
        if options.load_format == "auto":
            SafetensorsSource(folder, config.fp8_block)
        check_split(config, options)
        location = initial_location(config, options)
        draft = draft_shape(options, config, folder)
        device = _device(options)
        fault = _fault(options, device)
        if options.keep_weights and ADDRESS not in os.environ:
            raise OptionError(
                "keep-weights: nobody is there to keep them; the panel is, by moepanel up"
            )
        if options.speculative_ngram_min > options.speculative_ngram_max:
            raise OptionError(
                f"speculative-ngram-min {options.speculative_ngram_min} is above "
                f"speculative-ngram-max {options.speculative_ngram_max}"
            )
    except ModelError as error:
        raise RefusedError(Exit.MODEL, str(error)) from None
    except OptionError as error:
        raise RefusedError(Exit.USAGE, str(error)) from None
    options = settled(options, on_gpu=device == "cuda")
    dtype = _dtype(options.dtype, device)
    try:
        shard, on_gpu = shard_of(options, 0), device == "cuda"
        demand = Demand(config, shard, options, dtype.itemsize, on_gpu, draft)
        shared = make_shared(demand)
        events = Events(options.events_file)
    except OSError as error:
        raise RefusedError(Exit.FAILED, f"{error.filename}: {error.strerror}") from None
    listener = _bind(options.host, options.port)
    return Gang(
        options, folder, config, location, draft, device, dtype, fault, shared, events, listener
    )


def _device(options: Options) -> str:
    gpus = torch.cuda.device_count()
    device = options.device
    if device == "auto":
        device = "cuda" if gpus >= options.tp_size else "cpu"
    # Asked for by name, sums over peers also work between ranks that share a GPU: for tests.
    share = options.allreduce_backend == "peer" and gpus > 0
    if device == "cuda" and gpus < options.tp_size and not share:
        raise OptionError(f"tp-size {options.tp_size} needs as many GPUs; this node shows {gpus}")
    backends = {"cpu": ("auto", "shm", "gloo"), "cuda": ("auto", "nccl")}[device]
    sums = (*backends, "peer") if device == "cuda" else backends
    for flag, chosen, fitting in (
        ("allreduce-backend", options.allreduce_backend, sums),
        ("moe-a2a-backend", options.moe_a2a_backend, backends),
    ):
        if chosen not in ("none", *fitting):
            raise OptionError(
                f"{flag} {chosen} does not work on {device}; there: {', '.join(fitting)}"
            )
    return device


def _fault(options: Options, device: str) -> Fault | None:
    """Return the drill, if there is one, with the device of its rank."""
    if not options.fault:
        return None
    fault = parse_fault(options.fault, options.tp_size)
    if device == "cuda":
        return replace(fault, device=f"cuda:{fault.rank % torch.cuda.device_count()}")
    if fault.kind is Kind.ILLEGAL_ACCESS:
        raise OptionError("fault: kind illegal-access needs a GPU; on CPU ranks take segv")
    return fault


def _dtype(name: str, device: str) -> torch.dtype:
    if name == "auto":
        name = "float32" if device == "cpu" else "bfloat16"
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(512)
    except OSError as error:
        raise RefusedError(
            Exit.PORT,
            f"{host}:{port} cannot be bound: {error.strerror or error}; choose another --port",
        ) from None
    return listener
