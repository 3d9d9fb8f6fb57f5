"""The forward pass of one rank through kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn.functional import silu

from panel.kernels.embedding import look_up
from panel.kernels.experts import ExpertWeights, Workspace, moe
from panel.kernels.latent_decode import Paging, latent_decode
from panel.kernels.latent_prepare import latent_prepare
from panel.server.attention import LatentAttention
from panel.server.cuda.layout import Chunk
from panel.server.cuda.linear import linear
from panel.server.cuda.mixture import routing_of, weights_of, with_table
from panel.server.cuda.prefill import Chunks, attend_chunks
from panel.server.experts import Dense, ExpertsApart
from panel.server.model import Model
from panel.server.placement import Placement
from panel.server.reduction import Alone, Reduction
from panel.server.shape import ModelConfig


@dataclass(frozen=True, slots=True)
class Step:
    """A step's input on the device; see `Layout`."""

    count: int
    width: int
    chunks: tuple[Chunk, ...]
    views: Mapping[str, torch.Tensor]
    wanted: torch.Tensor | None
    """Rows whose logits are wanted; None: all."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A model whose layers all have kernels (`served`), with what they work on."""

    model: Model
    cache: torch.Tensor
    """[layers, slots, latent + rope]"""
    reduction: Reduction
    page_size: int
    sampled: torch.Tensor
    """The tokens that the step before has sampled, int64 [most rows]."""
    turns: torch.Tensor
    """Cosine and sine of each pair, float32 [positions, rope]."""
    experts: tuple[ExpertWeights | None, ...]
    """Of each layer; None for a plain one."""
    workspace: Workspace | None
    aux: torch.Tensor | None = None
    """Where a draft head finds what the tapped layers put out, [rows, tapped layers * hidden]."""

    @classmethod
    def of(
        cls,
        model: Model,
        config: ModelConfig,
        cache: torch.Tensor,
        reduction: Reduction,
        page_size: int,
        *,
        rows: int,
    ) -> Stack:
        """Return the stack for steps of at most `rows` rows."""
        experts = tuple(
            weights_of(layer.feed_forward) if isinstance(layer.feed_forward, ExpertsApart) else None
            for layer in model.layers
        )
        first = next((weights for weights in experts if weights is not None), None)
        workspace = None
        if first is not None:
            workspace = Workspace.of(rows, first, routing_of(config.experts))
        turns = torch.view_as_real(model.rotation).flatten(1).contiguous()
        sampled = torch.zeros(rows, dtype=torch.int64, device=cache.device)
        return cls(model, cache, reduction, page_size, sampled, turns, experts, workspace)

    def __call__(self, step: Step, *, poisoned: bool = False) -> torch.Tensor:
        """Return logits [wanted rows, this rank's part of the vocabulary]."""
        hidden = look_up(step.views["tokens"], self.sampled, self.model.embedding)
        if poisoned:
            hidden.fill_(float("nan"))
        caches = self.cache.unbind(0)
        for number, (layer, experts, cache) in enumerate(
            zip(self.model.layers, self.experts, caches, strict=True)
        ):
            assert isinstance(layer.attention, LatentAttention)
            mixed = self._attend(layer.attention, hidden, step, cache)
            self._add(hidden, mixed, layer.attention.out, layer.attention.out_bias)
            match layer.feed_forward:
                case Dense() as dense:
                    self._dense(dense, hidden)
                case ExpertsApart(placement=placement) if experts is not None:
                    self._mix(experts, placement, hidden, step)
            self.model.tell(number, hidden, self.aux)
        if step.wanted is not None:
            hidden = hidden[step.wanted]
        if not hidden.shape[0]:
            return hidden.new_empty(0, self.model.head.shape[1])
        return linear(hidden, self.model.head, norm=self.model.norm)

    def _attend(
        self, attention: LatentAttention, hidden: torch.Tensor, step: Step, cache: torch.Tensor
    ) -> torch.Tensor:
        """Write the cache entries; return each head's result, [rows, heads * (v or latent)]."""
        query, entry = _project(attention, hidden)
        decoding = step.count * step.width
        views = step.views
        mixed = []
        if decoding:
            rows = slice(0, decoding)
            absorbed = self._prepare(attention, query, entry, step, cache, rows, attention.key_up)
            paging = Paging(views["table"], views["lengths"], self.page_size)
            mixed.append(
                latent_decode(absorbed, cache, attention.latent, paging, attention.value_up)
            )
        if step.chunks:
            rows = slice(decoding, query.shape[0])
            rotated = self._prepare(attention, query, entry, step, cache, rows, None)
            chunks = Chunks(step.chunks, views["query_ends"], views["key_ends"])
            mixed.append(attend_chunks(attention, rotated, cache[views["keys"]], chunks))
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)

    def _prepare(
        self,
        attention: LatentAttention,
        query: torch.Tensor,
        entry: torch.Tensor,
        step: Step,
        cache: torch.Tensor,
        rows: slice,
        key_up: torch.Tensor | None,
    ) -> torch.Tensor:
        norm = (attention.latent_norm.gain, attention.latent_norm.floor)
        positions, slots = step.views["positions"][rows], step.views["slots"][rows]
        return latent_prepare(
            query[rows], entry[rows], self.turns, positions, norm, slots, cache, key_up
        )

    def _dense(self, dense: Dense, hidden: torch.Tensor) -> None:
        gate, up = linear(hidden, dense.gate_up, norm=dense.norm).chunk(2, dim=1)
        self._add(hidden, silu(gate).mul_(up), dense.down)

    def _mix(
        self, weights: ExpertWeights, placement: Placement, hidden: torch.Tensor, step: Step
    ) -> None:
        assert self.workspace is not None
        alone = isinstance(self.reduction, Alone)
        out = hidden if alone else self.reduction.part(hidden.shape[0])
        moe(
            hidden,
            with_table(weights, placement, hidden.shape[0]),
            self.workspace,
            out,
            residual=hidden if alone else None,
            real=step.views["real"],
            counts=placement.load,
        )
        if not alone:
            self.reduction.add_sum_(hidden)

    def _add(
        self,
        hidden: torch.Tensor,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
    ) -> None:
        """Add the sum over all ranks of `x @ weight + bias` to `hidden`."""
        if isinstance(self.reduction, Alone):
            linear(x, weight, bias=bias, residual=hidden)
        else:
            linear(x, weight, bias=bias, out=self.reduction.part(hidden.shape[0]))
            self.reduction.add_sum_(hidden)


def _project(attention: LatentAttention, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return queries [rows, heads, (latent or nope) + rope] and entries [rows, latent + rope]."""
    projected = linear(hidden, attention.down, norm=attention.norm, bias=attention.down_bias)
    query, entry = projected[:, : -attention.width], projected[:, -attention.width :]
    if attention.query_up is not None and attention.query_norm is not None:
        query = linear(query, attention.query_up, norm=attention.query_norm)
    return torch.unflatten(query, 1, (attention.heads, -1)), entry


def served(model: Model) -> bool:
    """True where kernels can compute all layers of a model."""
    return all(
        isinstance(layer.attention, LatentAttention)
        and (
            isinstance(layer.feed_forward, Dense)
            or (
                isinstance(layer.feed_forward, ExpertsApart)
                and layer.feed_forward.shared.split is None
            )
        )
        for layer in model.layers
    )
