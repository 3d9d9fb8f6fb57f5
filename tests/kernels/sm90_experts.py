"""Compile the mixture of experts of DeepSeek-V2-Lite for sm_90 and print what it uses, as JSON.

Run without TRITON_INTERPRET: `python -m tests.kernels.sm90_experts`.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import torch

from panel.kernels.experts import ExpertWeights, Workspace, moe
from panel.kernels.router import Routing
from tests.kernels.compiling import Compiled, sm90

HIDDEN, EXPERTS, COLUMNS, SHARED = 2048, 64, 1408, 2816


def some(*shape: int) -> torch.Tensor:
    """Return a tensor of which the shape alone matters."""
    return torch.empty(shape, dtype=torch.bfloat16, device="meta")


def launches(rows: int) -> list[Compiled]:
    """Return what a call with some rows compiles."""
    weights = ExpertWeights(
        gain=some(HIDDEN),
        floor=some(),
        route=some(HIDDEN, EXPERTS),
        gate_up=some(EXPERTS, HIDDEN, 2 * COLUMNS),
        down=some(EXPERTS, COLUMNS, HIDDEN),
        shared_gate_up=some(HIDDEN, 2 * SHARED),
        shared_down=some(SHARED, HIDDEN),
    )
    x, counts = some(rows, HIDDEN), torch.zeros(EXPERTS, dtype=torch.int64)
    workspace = Workspace.of(rows, weights, Routing(EXPERTS, 6))
    with sm90() as found:
        moe(x, weights, workspace, x, residual=x, real=torch.tensor([rows]), counts=counts)
    return found


if __name__ == "__main__":
    print(json.dumps({rows: [asdict(each) for each in launches(rows)] for rows in (2, 64, 2048)}))
