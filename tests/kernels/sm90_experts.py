"""Compile the mixture of experts of DeepSeek-V2-Lite for sm_90 and print what it uses, as JSON.

Run without TRITON_INTERPRET: `python -m tests.kernels.sm90_experts`.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import torch

from panel.kernels.expert_plan import HOPPER_SHARED, MEASURED, Plans
from panel.kernels.experts import ExpertWeights, Workspace, moe
from panel.kernels.router import Routing
from tests.kernels.compiling import Compiled, sm90

HIDDEN, EXPERTS, COLUMNS, SHARED = 2048, 64, 1408, 2816
SMALL_CARD = 99 << 10
"""Bytes of shared memory of a program on GPUs for desktops."""


def launches(rows: int, dtype: torch.dtype, limit: int = HOPPER_SHARED) -> list[Compiled]:
    """Return what a call with some rows compiles for so much shared memory."""

    def some(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

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
    plans = Plans({most: plan.fitted(dtype.itemsize, limit) for most, plan in MEASURED.items()})
    workspace = Workspace.of(rows, weights, Routing(EXPERTS, 6), plans)
    with sm90() as found:
        moe(x, weights, workspace, x, residual=x, real=torch.tensor([rows]), counts=counts)
    return found


CASES = {
    "one": (1, torch.bfloat16),
    "some": (64, torch.bfloat16),
    "many": (2048, torch.bfloat16),
    "small card": (2048, torch.bfloat16, SMALL_CARD),
    "float32": (1, torch.float32, SMALL_CARD),
    "float32 some": (300, torch.float32, SMALL_CARD),
}


if __name__ == "__main__":
    found = {name: [asdict(each) for each in launches(*case)] for name, case in CASES.items()}
    print(json.dumps(found))
