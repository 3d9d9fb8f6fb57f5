"""One of two ranks that dispatch rows to experts by kernels, in a process of its own, over gloo.

It imports no transformers: a process is started for each rank.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.kernels.latent_decode import Division
from panel.server.config import read_config
from panel.server.cuda.forward import KernelForward
from panel.server.cuda.layout import Paper
from panel.server.cuda.stack import Stack, served
from panel.server.exchange import DistributedExchange
from panel.server.loader import load_model
from panel.server.loading import Loading
from panel.server.parallel import Shard
from panel.server.placement import Placement
from panel.server.plan import decode_plan
from panel.server.reduction import Alone, Distributed
from panel.server.weights import SafetensorsSource

RANKS, PAGES, ROWS = 2, 64, 256
Answer = tuple[torch.Tensor, torch.Tensor | None]
"""Logits of a rank, and where they go among those of all ranks; None: they are its columns."""


class Contiguous(Loading):
    """Loads as for a GPU: every weight's rows as they lie."""

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        return super().place(tensor).contiguous()


def forward_of(folder: Path, shard: Shard, page_size: int) -> KernelForward:
    config = read_config(folder)
    loading = Contiguous(
        config, shard, SafetensorsSource(folder), torch.device("cpu"), torch.float32
    )
    count = config.experts.routed
    placements = {
        layer: Placement.of(range(count), shard, count, None) for layer in config.expert_layers
    }
    exchange = DistributedExchange("gloo", RANKS)
    model = load_model(loading, placements, exchange, 512, lambda done, total: None)
    assert served(model)
    # What nobody has written must not reach a result.
    width = shard.cache_width(config.attention)
    cache = torch.full((config.layers, PAGES * page_size, width), float("nan"))
    cache[:, :page_size] = 0
    buffer = torch.empty(ROWS, config.hidden_size)
    reduction = Alone(buffer) if shard.dp_attention else Distributed(buffer, "gloo")
    stack = Stack.of(model, config, cache, reduction, page_size, rows=ROWS)
    owner = shard.rank if shard.dp_attention else None
    return KernelForward(stack, Paper(page_size, 512, 4), owner)


def work(rank: int, folder: Path, dp: bool, plans: list[bytes], page_size: int) -> None:
    """Run plans; leave the answers in the file `rank<n>` of the folder."""
    torch.set_num_threads(1)
    Division.rule = partial(Division.rule, processors=8)  # type: ignore[method-assign]
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    shard = Shard(rank, RANKS, RANKS, True, dp, shared_sharded=not dp)
    forward = forward_of(folder, shard, page_size)
    answers = [forward(decode_plan(plan), poisoned=False) for plan in plans]
    torch.save(answers, folder / f"rank{rank}")
    dist.destroy_process_group()
