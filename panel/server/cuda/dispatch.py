"""A mixture of experts whose rows go to their experts on other ranks, by kernels.

Where ranks may have any number of rows, each row goes once to every rank that has experts for it
(`permute`) and the host learns how many, once a layer. Where all ranks have as many rows, as in a
decode step, nothing has a size that follows from the choice, so that a graph can hold it: each rank
gets the rows of all ranks with their choices, does the pairs that are its own, and gives every rank
its rows' results back. For `n` rows a rank sends `n` lines and `n` results to each other rank,
`2 * n * hidden * itemsize + 8 * n * chosen` bytes. Lines sorted by rank would need room for the
worst case, `n` a rank, so that they would travel in as many bytes, and of 64 experts on two ranks a
row's six are on both of them 98 times in a hundred.

Shared experts work while lines are under way: whole ones on a rank's own rows. Results come back
rounded as rows are and are added rank by rank in float32 by `unpermute`, never by a collective: the
same rows give the same sums always.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from panel.kernels.choose_slots import Slots, choose_slots
from panel.kernels.expert_shared import share_by_library
from panel.kernels.experts import ExpertWeights, Workspace, down, gate_up, score
from panel.kernels.permute import Lines, find_places, permute, unpermute
from panel.kernels.received import unpack
from panel.server.cuda.linear import linear
from panel.server.dispatch import ExpertsDispatched
from panel.server.exchange import all_gather, all_to_all
from panel.server.parallel import length
from panel.server.placement import Placement


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The exchange of one rank, for all layers."""

    workspace: Workspace

    def __call__(
        self,
        layer: ExpertsDispatched,
        weights: ExpertWeights,
        hidden: torch.Tensor,
        out: torch.Tensor,
        real: torch.Tensor,
        *,
        alike: bool,
    ) -> None:
        """Add the layer's result for this rank's own rows to `out`, which is then `hidden` itself.

        Where all rows are on every rank, write this rank's part of the sum into `out` instead.
        Shapes: hidden and out [rows, hidden]; real bool [rows], False for padding. All ranks call
        this together; `alike`: for as many rows each.
        """
        rows, split = hidden.shape[0], layer.split
        mine = slice(0, rows) if split is None else split.rows(rows)
        score(hidden, weights, self.workspace)
        self._choose(layer.placement, weights, mine, real)
        share = partial(self._share, layer, weights, out, mine)
        if alike:
            most = rows if split is None else -(-rows // split.tp_size)
            self._to_all(layer.placement, weights, mine, most, out[mine], share)
        else:
            self._to_some(layer.placement, weights, mine, out[mine], share)

    def _choose(
        self, placement: Placement, weights: ExpertWeights, mine: slice, real: torch.Tensor
    ) -> None:
        """Write each row's slots, among those of all ranks, and its weights into the groups."""
        space, (slots, shares) = self.workspace, self._chosen(mine)
        places = Slots(placement.experts, placement.period, placement.turn)
        choose_slots(
            space.logits[mine],
            weights.bias,
            space.routing,
            places,
            real[mine],
            slots,
            shares,
            placement.load,
        )

    def _share(
        self, layer: ExpertsDispatched, weights: ExpertWeights, out: torch.Tensor, mine: slice
    ) -> None:
        """Add the shared experts' result to `out`, or write this rank's part of it."""
        space, columns = self.workspace, weights.shared_down.shape[0]
        rows = slice(0, out.shape[0]) if layer.shared.split is None else mine
        if layer.split is not None and (not columns or layer.shared.split is not None):
            out.zero_()
        if not columns:
            return
        normed = space.normed[rows]
        both = space.scratch(2 * columns, normed.dtype)[: normed.shape[0]]
        act = space.shared[: normed.shape[0]]
        share_by_library(normed, weights.shared_gate_up, both, act)
        if layer.split is None:
            linear(act, weights.shared_down, residual=out)
        else:
            linear(act, weights.shared_down, out=out[rows])

    def _to_all(
        self,
        placement: Placement,
        weights: ExpertWeights,
        mine: slice,
        most: int,
        out: torch.Tensor,
        share: Callable[[], None],
    ) -> None:
        """Exchange `most` lines with each rank; `share` meanwhile; add what comes back to `out`."""
        ranks, space = placement.shard.tp_size, self.workspace
        lines = self._lines(out).empty(most, out.device)
        slots, shares = self._chosen(mine)
        permute(space.normed[mine], slots, shares, None, lines)
        gathered = lines.new_empty(ranks * most, lines.shape[1])
        all_gather(gathered.view(torch.int32), lines.view(torch.int32), meanwhile=share)
        results = self._compute(placement, weights, gathered)
        answers = torch.empty_like(results)
        all_to_all(answers, results)
        unpermute(answers, None, ranks, out)

    def _to_some(
        self,
        placement: Placement,
        weights: ExpertWeights,
        mine: slice,
        out: torch.Tensor,
        share: Callable[[], None],
    ) -> None:
        """Do the same with as many lines as rows ask for."""
        ranks, space = placement.shard.tp_size, self.workspace
        slots, shares = self._chosen(mine)
        places = find_places(slots, ranks, length(placement.own))
        coming = torch.empty_like(places.counts)
        all_to_all(coming, places.counts)
        there, here = torch.stack((places.counts, coming)).tolist()
        lines = self._lines(out).empty(sum(there), out.device)
        permute(space.normed[mine], slots, shares, places, lines)
        received = lines.new_empty(sum(here), lines.shape[1])
        asking, asked = lines.view(torch.int32), received.view(torch.int32)
        all_to_all(asked, asking, here, there, meanwhile=share)
        results = self._compute(placement, weights, received)
        answers = results.new_empty(sum(there), results.shape[1])
        all_to_all(answers, results, there, here)
        unpermute(answers, places, ranks, out)

    def _compute(
        self, placement: Placement, weights: ExpertWeights, lines: torch.Tensor
    ) -> torch.Tensor:
        """Return what this rank's experts make of lines, [lines, hidden]; the groups are lost."""
        space, routed = self.workspace, _without_shared(weights)
        results = lines.new_empty(lines.shape[0], space.normed.shape[1])
        form, own = self._lines(results), placement.own
        most = space.normed.shape[0]
        for some, out in zip(lines.split(most), results.split(most), strict=True):
            rows = some.shape[0]
            plan = space.plans.of(rows)
            height, normed = plan.gate_up.rows, space.normed[:rows]
            unpack(form, some, own.start, length(own), height, normed, space.groups)
            gate_up(rows, routed, space, plan)
            down(routed, space, plan, None, out)
        return results

    def _lines(self, rows: torch.Tensor) -> Lines:
        return Lines(rows.shape[1], self.workspace.routing.chosen, rows.dtype)

    def _chosen(self, mine: slice) -> tuple[torch.Tensor, torch.Tensor]:
        groups, rows = self.workspace.groups, length(mine)
        return groups.slots[:rows], groups.weights[:rows]


def _without_shared(weights: ExpertWeights) -> ExpertWeights:
    """Return the weights as they are where there are no shared experts."""
    return replace(
        weights,
        shared_gate_up=weights.shared_gate_up[:, :0].contiguous(),
        shared_down=weights.shared_down[:0],
    )
