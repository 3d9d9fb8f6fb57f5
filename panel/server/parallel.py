"""Which part of each layer a rank holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from panel.server.options import Options
from panel.server.shape import GroupedShape, LatentShape


@dataclass(frozen=True, slots=True)
class Shard:
    """A rank's place: heads, widths and vocabulary over all ranks, experts over groups of ranks.

    With `ep_size` groups each group of `tp_size / ep_size` ranks holds its experts whole. As a rule
    tokens are on every rank, and one sum over all ranks completes a layer. Under data-parallel
    attention each rank has its own tokens and all weights but the experts'.
    """

    rank: int
    tp_size: int
    ep_size: int = 1
    dispatching: bool = False
    """Whether tokens go to their experts by all-to-all."""
    dp_attention: bool = False
    shared_sharded: bool = True
    """Whether the shared experts are split over all ranks; else each rank has them whole."""
    domains: int = 1
    """Groups of ranks between which traffic is dear."""

    @property
    def expert_tp_size(self) -> int:
        """Ranks that share one expert."""
        return self.tp_size // self.ep_size

    @property
    def adds_bias(self) -> bool:
        """Whether this rank's part of an attention has the bias of its output."""
        return self.rank == 0 or self.dp_attention

    @property
    def counts_load(self) -> bool:
        """Whether this rank counts which experts its tokens choose, because no other one does."""
        return self.rank == 0 or self.dispatching

    def part(self, size: int) -> slice:
        """Return this rank's part of `size` units over all ranks."""
        return slice(0, size) if self.dp_attention else self.rows(size)

    def shared_part(self, width: int) -> slice:
        """Return this rank's part of the width of the shared experts."""
        return self.rows(width) if self.shared_sharded else slice(0, width)

    def rows(self, count: int) -> slice:
        """Return this rank's part of what is split whatever attention does."""
        return _part(count, self.rank, self.tp_size)

    def kv_heads(self, kv_heads: int) -> slice:
        """Return the cached heads that this rank's query heads look at.

        Where there are fewer of them than ranks, several ranks hold the same one.
        """
        if self.dp_attention:
            return slice(0, kv_heads)
        part = self.rows(max(kv_heads, self.tp_size))
        repeats = max(1, self.tp_size // kv_heads)
        return slice(part.start // repeats, -(-part.stop // repeats))

    def cache_width(self, attention: LatentShape | GroupedShape) -> int:
        """Return the elements of one token in this rank's cache of one layer."""
        if isinstance(attention, LatentShape):
            return attention.kv_lora_rank + attention.rope
        return 2 * length(self.kv_heads(attention.kv_heads)) * attention.head_dim

    def experts(self, slots: int) -> range:
        """Return the slots of routed experts that this rank holds (a part of)."""
        part = _part(slots, self.rank // self.expert_tp_size, self.ep_size)
        return range(part.start, part.stop)

    def expert_part(self, width: int) -> slice:
        """Return this rank's part of the intermediate width of each of its experts."""
        return _part(width, self.rank % self.expert_tp_size, self.expert_tp_size)

    def nearest(self, ranks: Sequence[int]) -> list[int]:
        """Return the indices of the nearest of `ranks`: here, else in this domain, else all."""
        size = self.tp_size // self.domains
        here = [n for n, rank in enumerate(ranks) if rank == self.rank]
        near = [n for n, rank in enumerate(ranks) if rank // size == self.rank // size]
        return here or near or list(range(len(ranks)))


def shard_of(options: Options, rank: int) -> Shard:
    """Return the place of `rank` under the flags."""
    shared = options.shared_experts_tp
    return Shard(
        rank,
        options.tp_size,
        options.ep_size,
        dispatching=options.moe_a2a_backend != "none",
        dp_attention=options.dp_attention,
        shared_sharded=shared == "sharded" or (shared == "auto" and not options.dp_attention),
        domains=options.eplb_domains,
    )


def length(part: slice) -> int:
    """Return how many units a part has."""
    count: int = part.stop - part.start
    return count


def _part(size: int, index: int, parts: int) -> slice:
    width = -(-size // parts)
    return slice(min(index * width, size), min((index + 1) * width, size))
