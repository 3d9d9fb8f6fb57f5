"""The forward pass of one rank through kernels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import silu

from panel.kernels.embedding import look_up
from panel.kernels.expert_plan import Plans
from panel.kernels.experts import ExpertWeights, Workspace, moe
from panel.server.attention import Attention, LatentAttention
from panel.server.cuda.dispatch import Dispatch
from panel.server.cuda.grouped import attend_grouped
from panel.server.cuda.latent import attend_latent
from panel.server.cuda.linear import linear
from panel.server.cuda.mixture import expert_layers, routing_of, with_table
from panel.server.cuda.step import Step
from panel.server.dispatch import ExpertsDispatched
from panel.server.exchange import DistributedExchange
from panel.server.experts import Dense, ExpertsApart, FeedForward
from panel.server.grouped import GroupedAttention
from panel.server.model import Model
from panel.server.norm import RMSNorm
from panel.server.placement import Placement
from panel.server.reduction import Alone, Reduction
from panel.server.shape import ModelConfig


@dataclass(frozen=True, slots=True)
class Stack:
    """A model whose layers all have kernels (`served`), with what they work on."""

    model: Model
    cache: torch.Tensor
    """[layers, slots, entry]"""
    reduction: Reduction
    page_size: int
    sampled: torch.Tensor
    """The tokens that the step before has sampled, int64 [most rows]."""
    turns: torch.Tensor
    """Cosine and sine of each pair, float32 [positions, rotated width]."""
    experts: tuple[ExpertWeights | None, ...]
    """Of each layer; None for a plain one."""
    workspace: Workspace | None
    dispatch: Dispatch | None = None
    """What takes rows to their experts; None where they are on every rank."""
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
        plans: Plans | None = None,
    ) -> Stack:
        """Return the stack for steps of at most `rows` rows; `plans` as in `Workspace.of`."""
        experts = expert_layers(model)
        first = next((weights for weights in experts if weights is not None), None)
        workspace = dispatch = None
        if first is not None:
            workspace = Workspace.of(rows, first, routing_of(config.experts), plans)
            if any(isinstance(layer.feed_forward, ExpertsDispatched) for layer in model.layers):
                dispatch = Dispatch(workspace)
        turns = torch.view_as_real(model.rotation).flatten(1).contiguous()
        sampled = torch.zeros(rows, dtype=torch.int64, device=cache.device)
        return cls(model, cache, reduction, page_size, sampled, turns, experts, workspace, dispatch)

    def __call__(self, step: Step, *, poisoned: bool = False) -> torch.Tensor:
        """Return logits [wanted rows, this rank's part of the vocabulary]."""
        hidden = look_up(step.views["tokens"], self.sampled, self.model.embedding)
        if poisoned:
            hidden.fill_(float("nan"))
        layers, caches = self.model.layers, self.cache.unbind(0)
        normed = None
        for number, (layer, experts, cache) in enumerate(
            zip(layers, self.experts, caches, strict=True)
        ):
            if normed is None:
                normed = layer.attention.norm(hidden)
            self._attend(layer.attention, normed, hidden, step, cache)
            # Where there are several ranks, their sum is normed for the next layer in one launch.
            norm = layers[number + 1].attention.norm if number + 1 < len(layers) else None
            match layer.feed_forward:
                case Dense() as dense:
                    normed = self._dense(dense, hidden, norm)
                case ExpertsApart(placement=placement) if experts is not None:
                    normed = self._mix(experts, placement, hidden, step, norm)
                case ExpertsDispatched() as sending if experts is not None:
                    normed = self._send(sending, experts, hidden, step, norm)
            self.model.tell(number, hidden, self.aux)
        if step.wanted is not None:
            hidden = hidden[step.wanted]
        if not hidden.shape[0]:
            return hidden.new_empty(0, self.model.head.shape[1])
        return linear(hidden, self.model.head, norm=self.model.norm)

    def _attend(
        self,
        attention: Attention,
        normed: torch.Tensor,
        hidden: torch.Tensor,
        step: Step,
        cache: torch.Tensor,
    ) -> None:
        if isinstance(attention, GroupedAttention):
            mixed = attend_grouped(attention, normed, step, cache, self.turns, self.page_size)
        else:
            assert isinstance(attention, LatentAttention)
            mixed = attend_latent(attention, normed, step, cache, self.turns, self.page_size)
        self._add(hidden, mixed, attention.out, attention.out_bias)

    def _dense(
        self, dense: Dense, hidden: torch.Tensor, norm: RMSNorm | None
    ) -> torch.Tensor | None:
        gate, up = linear(hidden, dense.gate_up, norm=dense.norm).chunk(2, dim=1)
        return self._add(hidden, silu(gate).mul_(up), dense.down, norm=norm)

    def _mix(
        self,
        weights: ExpertWeights,
        placement: Placement,
        hidden: torch.Tensor,
        step: Step,
        norm: RMSNorm | None,
    ) -> torch.Tensor | None:
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
        return None if alone else self._sum(hidden, norm)

    def _send(
        self,
        layer: ExpertsDispatched,
        weights: ExpertWeights,
        hidden: torch.Tensor,
        step: Step,
        norm: RMSNorm | None,
    ) -> torch.Tensor | None:
        assert self.dispatch is not None
        alone = layer.split is None
        out = hidden if alone else self.reduction.part(hidden.shape[0])
        self.dispatch(layer, weights, hidden, out, step.views["real"], alike=step.alike)
        return None if alone else self._sum(hidden, norm)

    def _add(
        self,
        hidden: torch.Tensor,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        norm: RMSNorm | None = None,
    ) -> torch.Tensor | None:
        """Add the sum over all ranks of `x @ weight + bias` to `hidden`; return as `_sum`."""
        if isinstance(self.reduction, Alone):
            linear(x, weight, bias=bias, residual=hidden)
            return None
        linear(x, weight, bias=bias, out=self.reduction.part(hidden.shape[0]))
        return self._sum(hidden, norm)

    def _sum(self, hidden: torch.Tensor, norm: RMSNorm | None) -> torch.Tensor | None:
        """Add all ranks' parts to `hidden`; return `norm` of the result where there is one."""
        total = self.reduction.add_sum_(hidden, norm)
        return None if norm is None else total


def served(model: Model) -> bool:
    """True where kernels can compute all layers of a model."""
    return all(
        isinstance(layer.attention, LatentAttention | GroupedAttention)
        and _served(layer.feed_forward)
        for layer in model.layers
    )


def _served(part: FeedForward) -> bool:
    match part:
        case Dense():
            return True
        case ExpertsApart(shared=shared):
            return shared.split is None
        case ExpertsDispatched(exchange=exchange):
            return isinstance(exchange, DistributedExchange)
    return False
