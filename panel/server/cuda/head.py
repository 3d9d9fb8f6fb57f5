"""The draft head's part of a cycle by kernels: catch up, draft token after token, keep features."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import torch
from torch.nn.functional import silu

from panel.kernels.arrivals import arrival_counts
from panel.kernels.best_token import best_token
from panel.kernels.draft_input import draft_input
from panel.kernels.grouped_decode import grouped_decode
from panel.kernels.grouped_prepare import grouped_prepare
from panel.kernels.latent_decode import Paging
from panel.server.cuda.capture import capture
from panel.server.cuda.clock import Clock
from panel.server.cuda.cycle import lay_out_cycle
from panel.server.cuda.layout import Paper
from panel.server.cuda.linear import linear
from panel.server.cuda.upload import Inputs
from panel.server.draft.model import DraftModel
from panel.server.draft.places import Places
from panel.server.plan import Plan, blank_decode


@dataclass(frozen=True, slots=True)
class Captured:
    """A cycle of one size; its graphs run before and after the one that verifies."""

    inputs: Inputs
    draft: torch.cuda.CUDAGraph
    keep: torch.cuda.CUDAGraph


@dataclass(frozen=True, slots=True)
class KernelHead:
    """A whole head on this rank; it drafts `width - 1` tokens for each sequence.

    Nothing of a cycle waits for the host: each draft is looked up where the one before was left.
    """

    model: DraftModel
    cache: torch.Tensor
    """[slots, entry]"""
    features: torch.Tensor
    """The table of `places`, [rows, hidden]; row 0 stays zero."""
    aux: torch.Tensor
    """Where the model that verifies leaves what the tapped layers put out, [rows, 3 * hidden]."""
    places: Places
    paper: Paper
    width: int
    """Tokens of a sequence that are verified."""
    turns: torch.Tensor
    """Cosine and sine of each pair, float32 [positions, head width]."""
    drafts: torch.Tensor
    """int64 [most sequences, width - 1], overwritten by each cycle."""
    clock: Clock
    graphs: dict[int, Captured] = field(default_factory=dict)
    """By sequences."""

    @classmethod
    def of(
        cls,
        model: DraftModel,
        cache: torch.Tensor,
        features: torch.Tensor,
        aux: torch.Tensor,
        places: Places,
        paper: Paper,
        *,
        sequences: int,
    ) -> KernelHead:
        """Return the head for at most so many sequences; the paper's width is that of a cycle."""
        turns = torch.view_as_real(model.rotation).flatten(1).contiguous()
        drafts = torch.zeros(sequences, paper.width - 1, dtype=torch.int64, device=cache.device)
        clock = Clock(cache.device)
        return cls(model, cache, features, aux, places, paper, paper.width, turns, drafts, clock)

    def draft(self, plan: Plan, owned: list[int]) -> tuple[torch.Tensor, Inputs]:
        """Begin a cycle of the plan's segments `owned`; return drafts [rows, plan's width - 1].

        And what `keep` has to be given once the drafts are verified.
        """
        cycle = lay_out_cycle(plan, plan.rows, self.width, self.paper, self.places, owned=owned)
        captured = self.graphs.get(plan.rows)
        self.clock.mark()
        if captured is None:
            inputs = Inputs.of(cycle.arrays, cycle.table, self.cache.device)
            self._draft(plan.rows, inputs)
        else:
            inputs = captured.inputs
            inputs.fill(cycle.arrays, cycle.table)
            captured.draft.replay()
        self.clock.mark()
        return self.drafts[: plan.rows, : plan.width - 1], inputs

    def keep(self, plan: Plan, inputs: Inputs) -> None:
        """Keep the features of the verified tokens until the head sees them."""
        captured = self.graphs.get(plan.rows)
        if captured is None:
            self._keep(plan.rows, inputs)
        else:
            captured.keep.replay()
        self.clock.mark()

    def serves(self, plan: Plan, owned: list[int]) -> bool:
        """True where a cycle has room for what the head has missed, and for its drafts."""
        missed = max((len(plan.decoding[number].fresh) for number in owned), default=0)
        return max(plan.width, 1 + missed) <= self.width and plan.rows <= len(self.drafts)

    def prepare(self, rows: int) -> None:
        """Capture the graphs of cycles of so many sequences."""
        device = self.cache.device
        arrival_counts(device)
        plan = blank_decode(rows, self.width)
        cycle = lay_out_cycle(plan, rows, self.width, self.paper, self.places, owned=[0])
        inputs = Inputs.of(cycle.arrays, cycle.table, device, pages=self.paper.pages)
        draft, keep = partial(self._draft, rows, inputs), partial(self._keep, rows, inputs)
        # Kernels are compiled, and their first buffers allocated, outside of the capture.
        draft()
        keep()
        pool = next((each.draft.pool() for each in self.graphs.values()), None)
        first, _ = capture(draft, pool)
        second, _ = capture(keep, first.pool())
        self.graphs[rows] = Captured(inputs, first, second)

    def _draft(self, rows: int, inputs: Inputs) -> None:
        """Let the head see what it has missed, and draft."""
        views, table, begin = inputs.arrays.views, inputs.table, 0
        tokens, features = views["tokens"], self.features
        places: torch.Tensor | None = views["before"]
        for step, lengths in enumerate(views["lengths"].unbind(0)):
            end = begin + len(tokens)
            positions, slots = views["positions"][begin:end], views["slots"][begin:end]
            both, hidden = self._look(tokens, places, features)
            query = self._attention(both, positions, slots)[:rows]
            # What was missed leaves an entry alone: nobody asks what follows it.
            paging = Paging(table, lengths, self.places.page_size)
            features = self._layer(query, hidden[:rows], paging)
            drafted = self.drafts[:rows, step]
            logits = linear(features, self.model.head, norm=self.model.norm)
            best_token(logits, self.model.ids, drafted)
            tokens, places, begin = drafted, None, end

    def _look(
        self, tokens: torch.Tensor, places: torch.Tensor | None, features: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        model = self.model
        return draft_input(
            tokens,
            model.embedding,
            (model.embedding_norm.gain, model.embedding_norm.floor),
            places,
            features,
            (model.feature_norm.gain, model.feature_norm.floor),
            normed=model.norm_before_residual,
        )

    def _attention(
        self, both: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor
    ) -> torch.Tensor:
        """Write the cache entries; return the queries [rows, heads, width]."""
        attention = self.model.attention
        projected = linear(both, attention.qkv)
        heads = projected.unflatten(1, (attention.heads + 2 * attention.kv_heads, -1))
        return grouped_prepare(heads, self.turns, positions, slots, self.cache)

    def _layer(self, query: torch.Tensor, hidden: torch.Tensor, paging: Paging) -> torch.Tensor:
        """Return `hidden` after the layer, in place; nothing is to be seen at position 0."""
        attention, feed_forward = self.model.attention, self.model.feed_forward
        mixed = grouped_decode(query, self.cache, attention.kv_heads, paging, 1)
        linear(mixed, attention.out, residual=hidden)
        gate, up = linear(hidden, feed_forward.gate_up, norm=feed_forward.norm).chunk(2, dim=1)
        return linear(silu(gate).mul_(up), feed_forward.down, residual=hidden)

    def _keep(self, rows: int, inputs: Inputs) -> None:
        kept = inputs.arrays.views["kept"]
        found = torch.mm(self.aux[: rows * self.width], self.model.fuse)
        # Those of padding are zeros, as row 0 is.
        real = kept.gt(0).unsqueeze(1)
        self.features.index_copy_(0, kept, torch.where(real, found, 0))
