"""The nursery of the engine's tests, with CPU ranks that compute by kernels, in the interpreter.

What a rank joins or launches on its device is in its log.
"""

from __future__ import annotations

import logging
import os
from functools import partial

os.environ["TRITON_INTERPRET"] = "1"

import torch

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.kernels.latent_decode import Division
from panel.server import load_experts, startup
from panel.server.cuda.assembly import with_kernels
from panel.server.loading import Loading
from panel.server.plan import Plan
from panel.server.runner import Runner
from tests.server import nursery

_join, _place = Runner.join, Loading.place


def join(runner: Runner, plan: Plan) -> None:
    """Join, and say how many tokens of the plan nobody on the host knows."""
    unknown = sum(token < 0 for segment in plan.segments for token in segment.tokens)
    logging.getLogger("tests").info("joins a step with %d unknown tokens", unknown)
    _join(runner, plan)


def place(loading: Loading, tensor: torch.Tensor) -> torch.Tensor:
    """Lay a weight as on a GPU: every row as the kernels read it."""
    return _place(loading, tensor).contiguous()


if __name__ == "__main__":
    load_experts.TOGETHER_LIMIT = 0
    Division.rule = partial(Division.rule, processors=8)  # type: ignore[method-assign]
    Loading.place = place  # type: ignore[method-assign]
    Runner.join = join  # type: ignore[method-assign]
    startup._by_kernels = with_kernels
    nursery.main()
