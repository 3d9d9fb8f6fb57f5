"""Where the cycles of a draft head are, and how far each has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from panel.kernels.draft_follow import Course
from panel.kernels.draft_places import Rows
from panel.kernels.draft_verify import Verification
from panel.server.cuda.cycle import Cycle
from panel.server.cuda.layout import Paper
from panel.server.cuda.sampler import Landing
from panel.server.cuda.upload import Inputs, Uploaded


class Where(NamedTuple):
    """Where the cycles of one size are, on the device."""

    course: Uploaded
    """What of a `Course` the head goes on with by itself."""
    asked: Inputs
    """What the host alone knows of each cycle, and the pages."""
    rows: Rows
    verification: Verification | None
    """What the graph that verifies reads; None without one."""

    @classmethod
    def of(cls, cycle: Cycle, paper: Paper, verified: Inputs | None, device: torch.device) -> Where:
        """Return room for cycles of that size; nothing of `cycle` is there yet.

        `verified` is what the graph that verifies reads, where there is one.
        """
        width, asked = paper.width, cycle.asked()
        if verified is None:
            inputs = Inputs.of(asked, cycle.table(), device, pages=paper.pages)
            verification = None
        else:
            inputs, views = verified.beside(asked), verified.arrays.views
            verification = Verification(*(views[name] for name in Verification._fields))
        course = Uploaded.like(cycle.course(width), device)
        return cls(course, inputs, Rows.of(width, cycle.rows, device), verification)

    @property
    def now(self) -> Course:
        """The course of the cycle at hand."""
        return Course(**self.course.views, **self.asked.arrays.views)


class Captured(NamedTuple):
    """A cycle of one size; its graphs run before and after the one that verifies."""

    where: Where
    draft: torch.cuda.CUDAGraph
    keep: torch.cuda.CUDAGraph


@dataclass(slots=True)
class Turn:
    """The cycle that is under way."""

    cycle: Cycle
    where: Where
    drafted: Cycle
    """The cycle whose pages were known when its drafts were made: itself, or the one before."""
    landing: Landing | None = None
    """What was sampled in it, where the drafts that follow are made, or under way."""
