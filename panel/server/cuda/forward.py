"""Plans through the kernels: decode steps from captured graphs, all others launch by launch."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import partial

import torch
import torch.distributed as dist

from panel.server.cuda.capture import capture
from panel.server.cuda.layout import Layout, Paper, lay_out
from panel.server.cuda.stack import Stack
from panel.server.cuda.step import Step
from panel.server.cuda.upload import Inputs, Uploaded, upload
from panel.server.forward import Forward
from panel.server.plan import Plan, Work, blank_decode
from panel.server.reduction import Reduction

log = logging.getLogger(__name__)

_OF_DEVICES = frozenset({"none", "peer"})
"""Paths of sums without torch.distributed."""


@dataclass(frozen=True, slots=True)
class Captured:
    """A decode step of one size."""

    graph: torch.cuda.CUDAGraph
    inputs: Inputs
    logits: torch.Tensor
    """[sequences * width, vocabulary part], overwritten by the next step of any size."""

    def fill(self, layout: Layout) -> None:
        """Copy a step's input to where the graph reads it."""
        self.inputs.fill(layout.arrays, layout.table)


@dataclass(frozen=True, slots=True)
class KernelForward:
    """One rank's shard, computed by kernels."""

    stack: Stack
    paper: Paper
    owner: int | None = None
    """This rank, where it computes its own segments alone."""
    graphs: dict[tuple[int, int], Captured] = field(default_factory=dict)
    """By sequences and tokens of each."""

    @property
    def reduction(self) -> Reduction:
        """The sums over all ranks."""
        return self.stack.reduction

    def __call__(self, plan: Plan, *, poisoned: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        layout = self.lay_out(plan)
        return self.run(plan, layout, None, poisoned=poisoned), layout.targets

    def lay_out(self, plan: Plan) -> Layout:
        """Return this rank's part of a plan, padded to a graph where there is one."""
        return lay_out(plan, self.paper, self._width(plan), self.owner)

    def run(
        self, plan: Plan, layout: Layout, drafts: torch.Tensor | None, *, poisoned: bool
    ) -> torch.Tensor:
        """Return the wanted logits of this rank's part of a plan.

        `drafts` [sequences, n] are a sequence's tokens after the first where the plan leaves them
        open.
        """
        captured = self.graphs.get((layout.count, layout.width))
        if captured is None or plan.work is not Work.DECODE or poisoned:
            return self._launch(plan, layout, drafts, poisoned=poisoned)
        captured.fill(layout)
        _fill_in(captured.inputs.arrays, layout, drafts)
        captured.graph.replay()
        if layout.width == plan.width:
            return captured.logits[: len(layout.wanted)]
        return captured.logits[self._device(layout)]

    def inputs(self, rows: int, width: int) -> Inputs | None:
        """Return what the graph of such a step reads; None without one."""
        captured = self.graphs.get((rows, width))
        return None if captured is None else captured.inputs

    def replay(self, plan: Plan) -> torch.Tensor:
        """Return the logits of a step of decoding sequences that lies in `inputs` already."""
        captured = self.graphs[plan.rows, plan.width]
        captured.graph.replay()
        return captured.logits[: len(plan.decoding) * plan.width]

    def watched(self, reduction: Reduction) -> Forward:
        return replace(self, stack=replace(self.stack, reduction=reduction), graphs={})

    def prepare(self, rows: int, width: int) -> None:
        """Capture a graph; all graphs share the memory of the first.

        All ranks call this together. Where a collective passes through the host, the step is only
        tried out.
        """
        layout = lay_out(blank_decode(rows, width), self.paper, width, self.owner)
        device = self.stack.cache.device
        inputs = Inputs.of(layout.arrays, layout.table, device, pages=self.paper.pages)
        views = inputs.arrays.views | {"table": inputs.table}
        step = Step(rows, width, (), views, None)
        # Kernels are compiled, their first buffers allocated and ranks connected outside of it.
        self.stack(step)
        if not self._stays_on_device():
            log.info("not captured: collectives of this step pass through the host")
            return
        pool = next((each.graph.pool() for each in self.graphs.values()), None)
        graph, logits = capture(partial(self.stack, step), pool)
        self.graphs[rows, width] = Captured(graph, inputs, logits)

    def _stays_on_device(self) -> bool:
        """True where no collective of a step passes through the host."""
        by_peers = _OF_DEVICES.issuperset(self.reduction.path.split("+"))
        if by_peers and self.stack.dispatch is None:
            return True
        return dist.is_initialized() and dist.get_backend() == "nccl"

    def _launch(
        self, plan: Plan, layout: Layout, drafts: torch.Tensor | None, *, poisoned: bool
    ) -> torch.Tensor:
        inputs = upload({**layout.arrays, "table": layout.table}, self.stack.cache.device)
        _fill_in(inputs, layout, drafts)
        wanted = self._device(layout)
        same = self.owner is None or plan.work is Work.DECODE
        step = Step(layout.count, layout.width, layout.chunks, inputs.views, wanted, same)
        return self.stack(step, poisoned=poisoned)

    def _device(self, layout: Layout) -> torch.Tensor:
        return upload({"wanted": layout.wanted}, self.stack.cache.device).views["wanted"]

    def _width(self, plan: Plan) -> int:
        """Return the tokens of each sequence that graphs exist for, else as planned."""
        fitting = (width for count, width in self.graphs if count == plan.rows)
        return min((width for width in fitting if width >= plan.width), default=plan.width)


def _fill_in(inputs: Uploaded, layout: Layout, drafts: torch.Tensor | None) -> None:
    if drafts is not None:
        decoding = inputs.views["tokens"][: layout.count * layout.width]
        decoding.view(layout.count, layout.width)[:, 1 : 1 + drafts.shape[1]] = drafts
