"""What a rank's memory goes to, known before anything is allocated; sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from panel.kernels.boxes import box_bytes
from panel.server.draft.demand import DraftDemand
from panel.server.draft.shape import DraftShape
from panel.server.location import slot_count
from panel.server.options import Options
from panel.server.parallel import Shard, length
from panel.server.shape import GroupedShape, LatentShape, ModelConfig
from panel.server.sizes import logit_rows, max_context, step_rows

SLOT_BYTES = 1 << 20
"""A rank's part of a larger sum goes through shared memory in pieces of this size."""
PEER_BYTES = 2 << 20
"""Largest sum that GPUs write straight into each other's memory: more goes by NCCL."""
_GRAIN = 2 << 20
"""The driver allocates and lends a GPU's memory in such pieces."""
HOST_LIMIT = 1 << 30
"""Most bytes of KV cache of all CPU ranks together."""


class Category(StrEnum):
    """What memory is for, in the order in which it is taken."""

    WEIGHTS = "weights"
    SHARED_EXPERTS = "shared_experts"
    WORKSPACE = "workspace"
    DRAFT = "draft"
    KV_CACHE = "kv_cache"
    GRAPHS = "graphs"
    OTHER = "other"
    """Interpreter, libraries, allocator: measured, never predicted."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one rank needs, from the model's shape and the flags alone."""

    config: ModelConfig
    shard: Shard
    options: Options
    element_size: int
    on_gpu: bool
    draft: DraftShape | None = None
    """The draft head, where there is one."""

    def table(self, room: int | None = None) -> dict[Category, int]:
        """Return the bytes of each category but for `other`.

        `room` is what KV cache may take; None where the flags alone bound it.
        """
        return {
            Category.WEIGHTS: self.weights,
            Category.SHARED_EXPERTS: self.shared_experts,
            Category.WORKSPACE: self.workspace,
            Category.DRAFT: 0 if self.head is None else self.head.fixed,
            Category.KV_CACHE: (self.pages(room) + 1) * self.page,
            Category.GRAPHS: 0,
        }

    @property
    def page(self) -> int:
        """One page of KV cache, all layers, and of the draft head's."""
        width = self.shard.cache_width(self.config.attention)
        model = self.options.page_size * self.config.layers * width * self.element_size
        return model if self.head is None else model + self.head.page

    @property
    def draft_shard(self) -> Shard | None:
        """This rank's place among those that draft; None for one that is told the drafts."""
        shard, ranks = self.shard, self.options.speculative_draft_ranks
        alone = ranks == "one" or (ranks == "auto" and not self.on_gpu)
        if not alone or shard.tp_size == 1 or shard.dp_attention:
            return shard
        return Shard(0, 1) if shard.rank == 0 else None

    @property
    def head(self) -> DraftDemand | None:
        """What the draft head takes of this rank; None where it has no part of it."""
        shard = self.draft_shard
        if self.draft is None or shard is None:
            return None
        context = max_context(self.options, self.config)
        return DraftDemand(
            self.draft,
            shard,
            self.options,
            self.element_size,
            self.config.vocab_size,
            context,
            alone=shard != self.shard,
        )

    def pages(self, room: int | None) -> int:
        """Return the pages of KV cache: what the flags say or can use, as far as `room` holds."""
        options = self.options
        if options.max_total_tokens is not None:
            return options.max_total_tokens // options.page_size
        context = max_context(options, self.config)
        useful = options.max_running_requests * (context + options.page_size) // options.page_size
        return useful if room is None else min(useful, room // self.page)

    @property
    def workspace(self) -> int:
        """Buffers of the collectives, and this rank's share of the logits."""
        buffer = step_rows(self.options) * self.config.hidden_size * self.element_size
        logits = 4 * logit_rows(self.options) * self.config.vocab_size // self.shard.tp_size
        rows, width = self.exchange
        exchange = rows * width * self.element_size
        return buffer + logits + self.sums + self.box + exchange + self.moving

    @property
    def sums(self) -> int:
        """This rank's slots for sums over all ranks through shared memory."""
        if self.sum_path != "shm":
            return 0
        return 2 * max(SLOT_BYTES, 8 * self.config.hidden_size)

    @property
    def box(self) -> int:
        """This rank's memory for sums over peers, which the other ranks' GPUs write to."""
        if self.sum_path not in ("auto", "peer"):
            return 0
        row = self.config.hidden_size * self.element_size
        return -(-box_bytes(self.shard.tp_size, self.peer_rows, row) // _GRAIN) * _GRAIN

    @property
    def peer_rows(self) -> int:
        """Most rows of a sum over peers: those of a decode or verify step, as far as they pay."""
        row = self.config.hidden_size * self.element_size
        return max(1, min(logit_rows(self.options), PEER_BYTES // row))

    @property
    def sum_path(self) -> str:
        """The path of the sums over all ranks that complete a layer; auto: what is fastest."""
        if self.shard.tp_size == 1 or self.shard.dp_attention:
            return "none"
        chosen = self.options.allreduce_backend
        return "shm" if chosen == "auto" and not self.on_gpu else chosen

    @property
    def exchange(self) -> tuple[int, int]:
        """Most rows that a rank sends by all-to-all through shared memory, and their elements."""
        if self.exchange_path != "shm":
            return 0, 0
        rows = step_rows(self.options)
        own = rows if self.shard.dp_attention else -(-rows // self.shard.tp_size)
        copies = min(self.config.experts.routing.experts_per_token, self.shard.ep_size)
        return own * copies, self.config.hidden_size + self._slots

    @property
    def exchange_path(self) -> str:
        """The path of the all-to-all."""
        chosen = self.options.moe_a2a_backend
        if chosen == "auto":
            return "nccl" if self.on_gpu else "shm"
        return chosen

    @property
    def moving(self) -> int:
        """Where the weights of one expert pass through when experts change their places."""
        if self.shard.ep_size == 1 or not self.config.expert_layers:
            return 0
        return self._expert * self.element_size

    @property
    def shared_experts(self) -> int:
        """This rank's part of the shared experts of all layers."""
        columns = length(self.shard.shared_part(self.config.experts.shared_width))
        layers = len(self.config.expert_layers)
        return 3 * layers * self.config.hidden_size * columns * self.element_size

    @property
    def weights(self) -> int:
        """All weights but the shared experts."""
        config, shard = self.config, self.shard
        hidden, experts = config.hidden_size, config.experts
        head = 0 if config.tied_embeddings else length(shard.part(config.vocab_size))
        elements = (config.vocab_size + head) * hidden + _norm(hidden)
        elements += config.layers * (self._attention + 2 * _norm(hidden))
        dense = 3 * hidden * length(shard.part(config.intermediate_size))
        elements += len(config.dense_layers) * dense
        layers = len(config.expert_layers)
        elements += layers * (self._slots * self._expert + hidden * experts.routed)
        correction = 4 * layers * experts.routed if experts.routing.correction else 0
        rotation = 8 * max_context(self.options, config) * (config.rope.width // 2)
        return elements * self.element_size + correction + rotation

    @property
    def _slots(self) -> int:
        """Slots of routed experts of one layer on this rank."""
        return len(self.shard.experts(slot_count(self.config, self.options)))

    @property
    def _expert(self) -> int:
        """Elements of this rank's part of one routed expert."""
        columns = length(self.shard.expert_part(self.config.experts.width))
        return 3 * self.config.hidden_size * columns

    @property
    def _attention(self) -> int:
        """Elements of one attention but for the norm before it."""
        config, shard = self.config, self.shard
        hidden, bias = config.hidden_size, config.attention_bias
        heads = length(shard.part(config.heads))
        out_bias = hidden if bias and shard.adds_bias else 0
        match config.attention:
            case LatentShape() as shape:
                return _latent(shape, hidden, heads, bias) + out_bias
            case GroupedShape() as shape:
                columns = (heads + 2 * length(shard.kv_heads(shape.kv_heads))) * shape.head_dim
                out = heads * shape.head_dim * hidden
                return columns * (hidden + bias) + 2 * _norm(shape.head_dim) + out + out_bias


def folding_pays(outer: int, inner: int, latent: int) -> bool:
    """True where outer x latent weights are at most twice those of outer x inner x latent."""
    return outer * latent <= 2 * inner * (outer + latent)


def _latent(shape: LatentShape, hidden: int, heads: int, bias: bool) -> int:
    latent, low = shape.kv_lora_rank, shape.q_lora_rank
    fold_query = folding_pays(hidden if low is None else low, shape.nope, latent)
    fold_value = folding_pays(hidden, shape.v, latent)
    query = heads * ((latent if fold_query else shape.nope) + shape.rope)
    first = query if low is None else low
    elements = (first + latent + shape.rope) * (hidden + bias) + _norm(latent)
    if low is not None:
        elements += low * query + _norm(low)
    if not fold_query:
        elements += heads * shape.nope * latent
    if not fold_value:
        elements += heads * latent * shape.v
    return elements + heads * (latent if fold_value else shape.v) * hidden


def _norm(width: int) -> int:
    return width + 1
