"""Plans through the kernels: decode steps from captured graphs, all others launch by launch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import torch

from panel.server.cuda.capture import capture
from panel.server.cuda.layout import Layout, Paper, lay_out
from panel.server.cuda.stack import Stack, Step
from panel.server.cuda.upload import Inputs, Uploaded, upload
from panel.server.forward import Forward
from panel.server.plan import Plan, Work, blank_decode
from panel.server.reduction import Alone, Reduction


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
    graphs: dict[tuple[int, int], Captured] = field(default_factory=dict)
    """By sequences and tokens of each."""

    @property
    def reduction(self) -> Reduction:
        """The sums over all ranks."""
        return self.stack.reduction

    def __call__(self, plan: Plan, *, poisoned: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        return self.run(plan, self.width(plan), None, poisoned=poisoned), None

    def run(
        self, plan: Plan, width: int, drafts: torch.Tensor | None, *, poisoned: bool
    ) -> torch.Tensor:
        """Return the wanted logits, with `width` tokens of each decoding sequence.

        `drafts` [sequences, n] are its tokens after the first where the plan leaves them open.
        """
        layout = lay_out(plan, self.paper, width)
        captured = self.graphs.get((layout.count, width))
        if captured is None or plan.work is not Work.DECODE or poisoned:
            return self._launch(layout, drafts, poisoned=poisoned)
        captured.fill(layout)
        _fill_in(captured.inputs.arrays, layout, drafts)
        captured.graph.replay()
        if width == plan.width:
            return captured.logits[: len(layout.wanted)]
        return captured.logits[self._device(layout)]

    def watched(self, reduction: Reduction) -> Forward:
        return replace(self, stack=replace(self.stack, reduction=reduction), graphs={})

    def prepare(self, rows: int, width: int) -> None:
        """Capture a graph; all graphs share the memory of the first.

        Where a step has sums over several ranks it is only tried out: such graphs have not been
        proven on any host yet.
        """
        layout = lay_out(blank_decode(rows, width), self.paper, width)
        device = self.stack.cache.device
        inputs = Inputs.of(layout.arrays, layout.table, device, pages=self.paper.pages)
        views = inputs.arrays.views | {"table": inputs.table}
        step = Step(rows, width, (), views, None)
        # Kernels are compiled, and their first buffers allocated, outside of the capture.
        self.stack(step)
        if not isinstance(self.reduction, Alone):
            torch.cuda.synchronize()
            return
        pool = next((each.graph.pool() for each in self.graphs.values()), None)
        graph, logits = capture(partial(self.stack, step), pool)
        self.graphs[rows, width] = Captured(graph, inputs, logits)

    def _launch(
        self, layout: Layout, drafts: torch.Tensor | None, *, poisoned: bool
    ) -> torch.Tensor:
        inputs = upload({**layout.arrays, "table": layout.table}, self.stack.cache.device)
        _fill_in(inputs, layout, drafts)
        wanted = self._device(layout)
        step = Step(layout.count, layout.width, layout.chunks, inputs.views, wanted)
        return self.stack(step, poisoned=poisoned)

    def _device(self, layout: Layout) -> torch.Tensor:
        return upload({"wanted": layout.wanted}, self.stack.cache.device).views["wanted"]

    def width(self, plan: Plan) -> int:
        """Return the tokens of each sequence that graphs exist for, else as planned."""
        fitting = (width for count, width in self.graphs if count == plan.rows)
        return min((width for width in fitting if width >= plan.width), default=plan.width)


def _fill_in(inputs: Uploaded, layout: Layout, drafts: torch.Tensor | None) -> None:
    if drafts is not None:
        decoding = inputs.views["tokens"][: layout.count * layout.width]
        decoding.view(layout.count, layout.width)[:, 1 : 1 + drafts.shape[1]] = drafts
