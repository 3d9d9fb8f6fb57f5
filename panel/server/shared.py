"""Everything the ranks of a gang share; made before the fork and inherited."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from panel.server.heartbeat import HeartbeatFile
from panel.server.kept.driver import HANDLE_BYTES
from panel.server.location import slot_count
from panel.server.meeting import Barrier, Rendezvous, Votes
from panel.server.memory import Demand
from panel.server.memory_report import MemoryReports
from panel.server.roster import Roster
from panel.server.shared_memory import Arena
from panel.server.sizes import draft_tokens, logit_rows, max_context


@dataclass(frozen=True, slots=True)
class Shared:
    """Memory, meetings and heartbeats of one gang."""

    roster: Roster
    barrier: Barrier
    rendezvous: Rendezvous
    votes: Votes
    heartbeats: HeartbeatFile
    memory: MemoryReports
    arena: Arena

    def slots(self, tp_size: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the slots of the sums, [2, ranks, elements]."""
        return self.arena.tensor("slots", dtype).view(2, tp_size, -1)

    def handles(self) -> memoryview:
        """Return where ranks tell what opens their memory for sums over peers."""
        return self.arena.bytes("handles")

    def exchange(self, demand: Demand, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rows of the all-to-all [ranks, rows, width] and how many go from whom to whom.

        The latter has shape [from, to], int64.
        """
        ranks = demand.shard.tp_size
        rows, width = demand.exchange
        lines = self.arena.tensor("exchange", dtype).view(ranks, rows, width)
        return lines, self.arena.tensor("exchange counts", torch.int64).view(ranks, ranks)

    def load(self, ranks: int, layers: int) -> torch.Tensor:
        """Return how often each expert was chosen, int64 [ranks, layers with experts, experts]."""
        return self.arena.tensor("load", torch.int64).view(ranks, layers, -1)

    def location(self, layers: int) -> torch.Tensor:
        """Return where new places of the experts are agreed on, int64 [layers, slots]."""
        return self.arena.tensor("location", torch.int64).view(layers, -1)

    def moving(self, ranks: int, dtype: torch.dtype) -> torch.Tensor:
        """Return where experts pass through on their way to other ranks, [ranks, elements]."""
        return self.arena.tensor("moving", dtype).view(ranks, -1)

    def guesses(self, ranks: int) -> torch.Tensor:
        """Return where ranks compare their best guesses, float64 [2, ranks, 2, rows]."""
        return self.arena.tensor("guesses", torch.float64).view(2, ranks, 2, -1)

    def drafts(self, most: int) -> torch.Tensor:
        """Return where the drafts of a step are told, int64 [sequences, `most`]."""
        return self.arena.tensor("drafts", torch.int64).view(-1, most)

    def logits(self, vocab_size: int) -> torch.Tensor:
        """Return where all ranks put their logits, [rows, vocabulary]."""
        return self.arena.tensor("logits", torch.float32).view(-1, vocab_size)


def make_shared(demand: Demand) -> Shared:
    """Return what a gang shares; `demand` is that of any rank."""
    options, config = demand.options, demand.config
    ranks = options.tp_size
    pages = -(-max_context(options, config) // options.page_size) + 1
    rows, width = demand.exchange
    layers = len(config.expert_layers)
    # msgpack takes at most five bytes for a token; a segment has a few fields more.
    segment = 64 + 5 * (1 + 2 * draft_tokens(options)) + 4 * pages
    head = demand.head
    arena = Arena(
        {
            "roster": Roster.size(ranks),
            "barrier": 8,
            "rendezvous": 8,
            "votes": 8 * ranks,
            "memory": MemoryReports.size(ranks),
            "plan": 4096
            + 5 * options.chunked_prefill_size
            + options.max_running_requests * segment,
            "slots": ranks * demand.sums,
            "handles": ranks * HANDLE_BYTES,
            "exchange": ranks * rows * width * demand.element_size,
            "exchange counts": 8 * ranks * ranks,
            "load": 8 * ranks * layers * config.experts.routed,
            "location": 8 * layers * slot_count(config, options),
            "moving": ranks * demand.moving,
            "guesses": 0 if head is None else ranks * head.guesses,
            "drafts": 0 if head is None else head.tokens,
            "logits": 4 * logit_rows(options) * config.vocab_size,
        }
    )
    barrier = Barrier(arena.bytes("barrier"), ranks)
    heartbeats = _heartbeats(options.heartbeat_file, ranks)
    return Shared(
        roster=Roster(arena.bytes("roster"), ranks, options.peer_timeout, heartbeats.ledger()),
        barrier=barrier,
        rendezvous=Rendezvous(arena.bytes("rendezvous"), arena.bytes("plan"), ranks),
        votes=Votes(arena.bytes("votes"), ranks, barrier),
        heartbeats=heartbeats,
        memory=MemoryReports(arena.bytes("memory")),
        arena=arena,
    )


def _heartbeats(path: str | None, ranks: int) -> HeartbeatFile:
    if path is not None:
        return HeartbeatFile(Path(path), ranks, create=True)
    descriptor, private = tempfile.mkstemp(prefix="moepanel-")
    os.close(descriptor)
    try:
        return HeartbeatFile(Path(private), ranks, create=True)
    finally:
        os.unlink(private)
