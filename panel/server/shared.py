"""Everything the ranks of a gang share; made before the fork and inherited."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from panel.server.config import ModelConfig
from panel.server.heartbeat import HeartbeatFile
from panel.server.meeting import Barrier, Rendezvous, Votes
from panel.server.options import Options
from panel.server.roster import Roster
from panel.server.shared_memory import Arena

SLOT_BYTES = 1 << 20
"""A rank's part of a larger sum goes through shared memory in pieces of this size."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Memory, meetings and heartbeats of one gang."""

    roster: Roster
    barrier: Barrier
    rendezvous: Rendezvous
    votes: Votes
    heartbeats: HeartbeatFile
    arena: Arena

    def slots(self, tp_size: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the slots of the sums, [2, ranks, elements]."""
        return self.arena.tensor("slots", dtype).view(2, tp_size, -1)

    def logits(self, vocab_size: int) -> torch.Tensor:
        """Return where all ranks put their logits, [rows, vocabulary]."""
        return self.arena.tensor("logits", torch.float32).view(-1, vocab_size)


def draft_tokens(options: Options) -> int:
    """Return the most tokens guessed for one sequence in a step."""
    if options.speculative_algorithm == "off":
        return 0
    return options.speculative_num_draft_tokens


def logit_rows(options: Options) -> int:
    """Return the most rows of logits in one step."""
    return options.max_running_requests * (1 + draft_tokens(options))


def max_context(options: Options, config: ModelConfig) -> int:
    """Return the most tokens of a sequence that flags and model allow."""
    return min(options.context_length or config.max_context, config.max_context)


def make_shared(options: Options, config: ModelConfig) -> Shared:
    """Return what a gang of `options.tp_size` ranks shares."""
    ranks = options.tp_size
    pages = -(-max_context(options, config) // options.page_size) + 1
    slot = max(SLOT_BYTES, 8 * config.hidden_size)
    # msgpack takes at most five bytes for a token; a segment has a few fields more.
    segment = 64 + 5 * (1 + draft_tokens(options)) + 4 * pages
    arena = Arena(
        {
            "roster": Roster.size(ranks),
            "barrier": 8,
            "rendezvous": 8,
            "votes": 8 * ranks,
            "plan": 4096
            + 5 * options.chunked_prefill_size
            + options.max_running_requests * segment,
            "slots": 2 * ranks * slot,
            "logits": 4 * logit_rows(options) * config.vocab_size,
        }
    )
    barrier = Barrier(arena.bytes("barrier"), ranks)
    return Shared(
        roster=Roster(arena.bytes("roster"), ranks, options.peer_timeout),
        barrier=barrier,
        rendezvous=Rendezvous(arena.bytes("rendezvous"), arena.bytes("plan"), ranks),
        votes=Votes(arena.bytes("votes"), ranks, barrier),
        heartbeats=_heartbeats(options.heartbeat_file, ranks),
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
