"""The choice of experts and of the replicas that serve it, among the slots of all ranks.

Slot `s` has the expert `experts[s]` and takes the rows for which `row % period[s] == turn[s]`; the
tables are read on the device, so that a graph that holds this follows the experts when they move.
Bytes moved: a row's logits in, eight a choice out; it is bound by the launch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from panel.kernels.router import Routing, choose, choose_reference


@dataclass(frozen=True, slots=True)
class Slots:
    """Where the experts are; all int64 [slots]."""

    experts: torch.Tensor
    period: torch.Tensor
    turn: torch.Tensor
    """Not below the period where nobody here picks the slot."""


def choose_slots_reference(
    logits: torch.Tensor,
    bias: torch.Tensor | None,
    routing: Routing,
    places: Slots,
    real: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return slots int32 and weights float32 [rows, chosen], and how many rows chose each expert.

    Shapes: logits [rows, experts]; bias [experts]; real bool [rows], False for padding, which has
    slot -1 and is not counted.
    """
    ids, weights = choose_reference(logits, bias, routing)
    rows = torch.arange(logits.shape[0], device=logits.device)[:, None]
    theirs = rows % places.period == places.turn
    match = (places.experts == ids[:, :, None]) & (theirs & real[:, None])[:, None]
    numbers = torch.arange(1, places.experts.shape[0] + 1, device=logits.device)
    slots = (match * numbers).amax(2) - 1
    counts = torch.bincount(ids[real].flatten(), minlength=routing.experts)
    return slots.to(torch.int32), weights, counts


def choose_slots(
    logits: torch.Tensor,
    bias: torch.Tensor | None,
    routing: Routing,
    places: Slots,
    real: torch.Tensor,
    slots: torch.Tensor,
    weights: torch.Tensor,
    counts: torch.Tensor | None,
) -> None:
    """Write slots and weights as the reference returns them, and add to `counts` int64 [experts].

    Logits are float32.
    """
    rows, experts = logits.shape
    count = places.experts.shape[0]
    _choose_slots[(triton.cdiv(rows, 4),)](
        logits,
        bias,
        real.view(torch.uint8),
        places.experts,
        places.period,
        places.turn,
        slots,
        weights,
        counts,
        rows,
        experts,
        count,
        R=4,
        SB=max(16, int(triton.next_power_of_2(count))),
        **routing.constants,
        num_warps=4,
    )


@triton.jit(do_not_specialize=["rows"], do_not_specialize_on_alignment=["logits", "real"])  # type: ignore[untyped-decorator]
def _choose_slots(  # type: ignore[no-untyped-def]
    logits,
    bias,
    real,
    homes,
    periods,
    turns,
    slots,
    weights,
    counts,
    rows,
    experts,
    count,
    R: tl.constexpr,  # noqa: N803
    SB: tl.constexpr,  # noqa: N803
    K: tl.constexpr,  # noqa: N803
    KB: tl.constexpr,  # noqa: N803
    EB: tl.constexpr,  # noqa: N803
    SIGMOID: tl.constexpr,  # noqa: N803
    NORMALISE: tl.constexpr,  # noqa: N803
    GROUPS: tl.constexpr,  # noqa: N803
    GROUPS_KEPT: tl.constexpr,  # noqa: N803
    GROUP_BEST: tl.constexpr,  # noqa: N803
):
    row = tl.program_id(0) * R + tl.arange(0, R)
    here = row < rows
    who, weight, taken = choose(
        logits, bias, row, here, experts,
        K, KB, EB, SIGMOID, NORMALISE, GROUPS, GROUPS_KEPT, GROUP_BEST,
    )  # fmt: skip
    counted = here & (tl.load(real + row, mask=here, other=0) != 0)
    every, number = tl.arange(0, SB)[None, :], tl.arange(0, KB)[None, :]
    home = tl.load(homes + every, mask=every < count, other=-1)
    period = tl.load(periods + every, mask=every < count, other=1)
    turn = tl.load(turns + every, mask=every < count, other=1)
    theirs = counted[:, None] & (row[:, None] % period == turn)
    slot = tl.full([R, KB], -1, tl.int32)
    for step in range(K):
        mine = tl.max(tl.where(number == step, who, -1), axis=1)[:, None]
        found = tl.max(tl.where(theirs & (home == mine), every, -1), axis=1)[:, None]
        slot = tl.where(number == step, found, slot)
    at, inside = row[:, None] * K + number, here[:, None] & (number < K)
    tl.store(slots + at, slot, mask=inside)
    tl.store(weights + at, weight, mask=inside)
    if counts is not None:
        expert = tl.arange(0, EB)
        hits = tl.sum(tl.where(counted[:, None], taken, 0), axis=0)
        tl.atomic_add(counts + expert, hits.to(tl.int64), mask=(hits > 0) & (expert < experts))
