"""The draft head's part of a cycle by kernels: catch up, draft token after token, keep features."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import torch
from torch.nn.functional import silu

from panel.kernels.arrivals import arrival_counts
from panel.kernels.best_token import best_token
from panel.kernels.draft_follow import follow_drafts
from panel.kernels.draft_input import draft_input
from panel.kernels.draft_places import Ring, draft_places, keep_features
from panel.kernels.draft_verify import lay_out_verification
from panel.kernels.grouped_decode import grouped_decode
from panel.kernels.grouped_prepare import grouped_prepare
from panel.kernels.latent_decode import Paging
from panel.server.cuda.capture import capture
from panel.server.cuda.clock import Clock
from panel.server.cuda.cycle import Cycle
from panel.server.cuda.layout import Paper
from panel.server.cuda.linear import linear
from panel.server.cuda.sampler import Landing
from panel.server.cuda.target import KernelTarget
from panel.server.cuda.turn import Captured, Turn, Where
from panel.server.draft.model import DraftModel
from panel.server.draft.places import Places
from panel.server.draft.target import Verified
from panel.server.plan import Plan, blank_decode


@dataclass(slots=True)
class KernelHead:
    """A whole head on this rank; it drafts `width - 1` tokens for each sequence.

    Nothing of a cycle waits for the host: each draft is looked up where the one before was left,
    and where the host's next plan is the one that is expected, its drafts are there already.
    """

    model: DraftModel
    cache: torch.Tensor
    """[slots, entry]"""
    features: torch.Tensor
    """The table of `ring`, [rows, hidden]; row 0 stays zero."""
    aux: torch.Tensor
    """Where the model that verifies leaves what the tapped layers put out, [rows, 3 * hidden]."""
    ring: Ring
    paper: Paper
    turns: torch.Tensor
    """Cosine and sine of each pair, float32 [positions, head width]."""
    drafts: torch.Tensor
    """int64 [most sequences, width - 1], overwritten by each cycle."""
    clock: Clock
    target: KernelTarget | None = None
    """The model that verifies, where it does so by kernels."""
    rate: float | None = None
    """The acceptance that is simulated; None: a real one."""
    graphs: dict[int, Captured] = field(default_factory=dict)
    """By sequences."""
    turn: Turn | None = None
    """None where the step before was no cycle."""

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
        target: KernelTarget | None = None,
        rate: float | None = None,
    ) -> KernelHead:
        """Return the head for at most so many sequences; the paper's width is that of a cycle."""
        turns = torch.view_as_real(model.rotation).flatten(1).contiguous()
        drafts = torch.zeros(sequences, paper.width - 1, dtype=torch.int64, device=cache.device)
        ring = Ring(places.pages, places.recent, places.page_size, paper.context)
        clock = Clock(cache.device)
        return cls(model, cache, features, aux, ring, paper, turns, drafts, clock, target, rate)

    @property
    def width(self) -> int:
        """Tokens of a sequence that are verified at most."""
        return self.paper.width

    @property
    def _page(self) -> int:
        return self.ring.page_size

    def serves(self, plan: Plan, owned: list[int]) -> bool:
        """True where a cycle has room for what the head has missed, and for its drafts."""
        missed = max((len(plan.decoding[number].fresh) for number in owned), default=0)
        return max(plan.width, 1 + missed) <= self.width and plan.rows <= len(self.drafts)

    def draft(self, plan: Plan, owned: list[int]) -> None:
        """Begin a cycle of the plan's segments `owned`: its drafts are made, or under way."""
        cycle, before = Cycle.of(plan, owned), self.turn
        if before is not None and self._went_on(before, cycle):
            self.turn = Turn(cycle, before.where, before.cycle)
        else:
            self.turn = Turn(cycle, self._where(cycle), cycle)
            self.turn.where.course.fill(cycle.course(self.width))
            self.turn.where.asked.fill(cycle.asked(), cycle.table())
            self._begin(plan.rows, self.turn.where)

    def drafted(self, plan: Plan) -> torch.Tensor:
        """Return the drafts of a cycle that has begun, [rows, plan's width - 1]."""
        return self.drafts[: plan.rows, : plan.width - 1]

    def verify(self, plan: Plan) -> Verified | None:
        """Verify where the input lies there already; None, and nothing done, where it does not."""
        assert self.turn is not None
        cycle, where, drafted = self.turn.cycle, self.turn.where, self.turn.drafted
        if self.target is None or where.verification is None:
            return None
        foreseen = drafted.foresees(cycle, self.width, self._page)
        return self.target.replay(plan) if foreseen else None

    def keep(self, width: int) -> None:
        """Keep the features of the tokens verified, `width` a sequence, until they are seen."""
        assert self.turn is not None
        cycle, where = self.turn.cycle, self.turn.where
        if not self.turn.drafted.asks_alike(cycle):
            where.asked.fill(cycle.asked(), cycle.table())
        captured = self.graphs.get(cycle.rows)
        if captured is None or width != self.width:
            self._keep(cycle.rows, where, width)
        else:
            captured.keep.replay()

    def go_on(self, sampled: torch.Tensor, landing: Landing) -> None:
        """Begin the next cycle from what was sampled in this one, if it is one.

        `sampled` int64 [sequences * the plan's width or more]; `landing` brings it to the host.
        """
        turn = self.turn
        if turn is None:
            return
        cycle, course = turn.cycle, turn.where.now
        found = sampled[: cycle.rows * cycle.width].view(cycle.rows, cycle.width)
        follow_drafts(found, self.drafts, course, self.rate)
        self._begin(cycle.rows, turn.where)
        turn.landing = landing

    def stop(self) -> None:
        """Let a step come that is no cycle."""
        self.turn = None

    def prepare(self, rows: int) -> None:
        """Capture the graphs of cycles of so many sequences."""
        arrival_counts(self.cache.device)
        cycle = Cycle.of(blank_decode(rows, self.width), [0])
        where = self._where(cycle)
        where.course.fill(cycle.course(self.width))
        where.asked.fill(cycle.asked(), cycle.table())
        draft, keep = partial(self._draft, rows, where), partial(self._keep, rows, where)
        # Kernels are compiled, and their first buffers allocated, outside of the capture.
        draft()
        keep(self.width)
        found = torch.zeros(rows, self.width, dtype=torch.int64, device=self.cache.device)
        follow_drafts(found, self.drafts, where.now, self.rate)
        pool = next((each.draft.pool() for each in self.graphs.values()), None)
        first, _ = capture(draft, pool)
        second, _ = capture(partial(keep, self.width), first.pool())
        self.graphs[rows] = Captured(where, first, second)

    def _went_on(self, before: Turn, cycle: Cycle) -> bool:
        """True where the drafts of `cycle` were begun after the one `before` it."""
        landing = before.landing
        return landing is not None and before.cycle.goes_on(cycle, landing.tokens(), self._page)

    def _where(self, cycle: Cycle) -> Where:
        """Return where a cycle of that size is, with room for any sequence."""
        if cycle.rows in self.graphs:
            return self.graphs[cycle.rows].where
        verified = None if self.target is None else self.target.inputs(cycle.rows, self.width)
        return Where.of(cycle, self.paper, verified, self.cache.device)

    def _begin(self, rows: int, where: Where) -> None:
        captured = self.graphs.get(rows)
        with self.clock.on("draft"):
            if captured is None:
                self._draft(rows, where)
            else:
                captured.draft.replay()

    def _draft(self, rows: int, where: Where) -> None:
        """Let the head see what it has missed, and draft."""
        table, every, tokens = where.asked.table, where.rows, where.now.tokens.view(-1)
        draft_places(where.now, table, self.ring, every)
        features, begin = self.features, 0
        places: torch.Tensor | None = every.before
        for step, lengths in enumerate(every.lengths.unbind(0)):
            end = begin + len(tokens)
            positions, slots = every.positions[begin:end], every.slots[begin:end]
            both, hidden = self._look(tokens, places, features)
            query = self._attention(both, positions, slots)[:rows]
            # What was missed leaves an entry alone: nobody asks what follows it.
            paging = Paging(table, lengths, self.ring.page_size)
            features = self._layer(query, hidden[:rows], paging)
            drafted = self.drafts[:rows, step]
            logits = linear(features, self.model.head, norm=self.model.norm)
            best_token(logits, self.model.ids, drafted)
            tokens, places, begin = drafted, None, end
        if where.verification is not None:
            lay_out_verification(where.now, self.drafts, table, self.ring, where.verification)

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

    def _keep(self, rows: int, where: Where, width: int) -> None:
        found = torch.mm(self.aux[: rows * width], self.model.fuse)
        keep_features(found, where.now, where.asked.table, self.ring, self.features)
