"""What the draft head takes of a rank's memory, known before anything is allocated; in bytes."""

from __future__ import annotations

from dataclasses import dataclass

from panel.server.draft.shape import AUX, DraftShape
from panel.server.options import Options
from panel.server.parallel import Shard, length
from panel.server.sizes import draft_tokens, step_rows


@dataclass(frozen=True, slots=True)
class DraftDemand:
    """Of one rank."""

    shape: DraftShape
    shard: Shard
    options: Options
    element_size: int
    vocab_size: int
    """Of the model."""
    context: int
    alone: bool = False
    """Whether it is on one of several ranks, whole."""

    @property
    def fixed(self) -> int:
        """Weights, features under way, hidden states of a step, guesses that ranks compare."""
        hidden, element = self.shape.hidden_size, self.element_size
        under_way = self.seats * self.recent * hidden * element
        aux = step_rows(self.options) * AUX * hidden * element
        buffer = step_rows(self.options) * hidden * element if self.alone else 0
        shared = self.guesses + self.tokens // self.shard.tp_size
        return self.weights + under_way + aux + buffer + shared

    @property
    def weights(self) -> int:
        """Weights and tables of the head."""
        shape, shard = self.shape, self.shard
        hidden, width = shape.hidden_size, shape.attention.head_dim
        heads = length(shard.part(shape.heads))
        columns = heads + 2 * length(shard.kv_heads(shape.attention.kv_heads))
        vocabulary = length(shard.part(shape.vocab_size))
        elements = length(shard.part(AUX * hidden)) * hidden
        elements += 2 * hidden * columns * width + heads * width * hidden
        elements += 3 * hidden * length(shard.part(shape.intermediate_size))
        elements += hidden * vocabulary + 4 * (hidden + 1)
        if shape.own_embedding:
            elements += self.vocab_size * hidden
        rotation = 8 * self.context * (shape.rope.width // 2)
        return elements * self.element_size + 8 * vocabulary + rotation

    @property
    def page(self) -> int:
        """One page: an entry for each token, and the feature of the last one."""
        entry = self.options.page_size * self.cache_width
        return (entry + self.shape.hidden_size) * self.element_size

    @property
    def cache_width(self) -> int:
        """Elements of a token's entry on this rank."""
        return self.shard.cache_width(self.shape.attention)

    @property
    def seats(self) -> int:
        """Sequences whose features are under way, at most."""
        return self.options.max_running_requests

    @property
    def recent(self) -> int:
        """Features kept of each: those that wait to be seen and those of the next step."""
        return 2 * (draft_tokens(self.options) + 1)

    @property
    def guesses(self) -> int:
        """This rank's best guesses beside those of the others, in shared memory, two sets."""
        if self.shard.tp_size == 1 or self.shard.dp_attention:
            return 0
        return 2 * 2 * 8 * self.seats

    @property
    def tokens(self) -> int:
        """Where the drafts of a step are told, all sequences together."""
        return 8 * self.seats * draft_tokens(self.options)
