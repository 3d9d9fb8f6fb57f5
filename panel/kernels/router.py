"""The choice of experts, a row at a time.

Equal scores: the expert with the lowest number wins, as in a stable descending sort; `torch.topk`
promises no order. A logit that is no number makes its row's weights no numbers and stays within
the tables. Bytes moved: a row's logits in, eight an expert chosen out. Sources: the routers of
DeepSeek-V2 (softmax, groups ranked by their best) and DeepSeek-V3 (sigmoid, correction for the
choice alone, groups ranked by their two best).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@dataclass(frozen=True, slots=True)
class Routing:
    """How a row's experts are chosen; the scaling factor is in the experts' weights."""

    experts: int
    chosen: int
    """Experts a row."""
    sigmoid: bool = False
    """Sigmoid scores; else softmax."""
    normalise: bool = False
    groups: int = 1
    groups_kept: int = 1
    group_best: int = 1
    """How many of a group's best scores, summed, rank the group."""

    @property
    def constants(self) -> dict[str, int | bool]:
        """The compile-time parameters of `choose`."""
        return {
            "K": self.chosen,
            "KB": triton.next_power_of_2(self.chosen),
            "EB": max(16, triton.next_power_of_2(self.experts)),
            "SIGMOID": self.sigmoid,
            "NORMALISE": self.normalise,
            "GROUPS": self.groups,
            "GROUPS_KEPT": self.groups_kept,
            "GROUP_BEST": self.group_best,
        }


def choose_reference(
    logits: torch.Tensor, bias: torch.Tensor | None, routing: Routing
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids int64 and weights float32, best first; both [rows, chosen].

    Shapes: logits [rows, experts]; bias [experts], added for the choice alone.
    """
    wide = logits.float()
    scores = torch.sigmoid(wide) if routing.sigmoid else torch.softmax(wide, dim=-1)
    choice = scores if bias is None else scores + bias.float()
    if routing.groups > 1:
        grouped = torch.unflatten(choice, 1, (routing.groups, -1))
        best = grouped.topk(routing.group_best, dim=-1).values.sum(dim=-1)
        closed = torch.ones_like(best, dtype=torch.bool)
        closed.scatter_(1, _first(best, routing.groups_kept), False)
        choice = grouped.masked_fill(closed[:, :, None], float("-inf")).flatten(1)
    ids = _first(choice, routing.chosen)
    weights = scores.gather(1, ids)
    if routing.normalise:
        weights = weights / weights.sum(dim=-1, keepdim=True).add_(1e-20)
    return ids, weights


def _first(values: torch.Tensor, count: int) -> torch.Tensor:
    """Return the places of the largest values; the first of equal ones."""
    return values.sort(dim=-1, descending=True, stable=True).indices[:, :count]


@triton.jit  # type: ignore[untyped-decorator]
def choose(  # type: ignore[no-untyped-def]
    logits,
    bias,
    row,
    here,
    experts,
    K: tl.constexpr,  # noqa: N803
    KB: tl.constexpr,  # noqa: N803
    EB: tl.constexpr,  # noqa: N803
    SIGMOID: tl.constexpr,  # noqa: N803
    NORMALISE: tl.constexpr,  # noqa: N803
    GROUPS: tl.constexpr,  # noqa: N803
    GROUPS_KEPT: tl.constexpr,  # noqa: N803
    GROUP_BEST: tl.constexpr,  # noqa: N803
):
    """Return ids [R, KB], weights [R, KB] and whether each expert was chosen [R, EB]."""
    expert = tl.arange(0, EB)[None, :]
    turn = tl.arange(0, KB)[None, :]
    exists = expert < experts
    at, inside = logits + row[:, None] * experts + expert, here[:, None] & exists
    raw = tl.load(at, mask=inside, other=0.0, cache_modifier=".cg")
    raw = raw.to(tl.float32)
    if SIGMOID:
        scores = 1.0 / (1.0 + tl.exp(-raw))
    else:
        raw = tl.where(exists, raw, float("-inf"))
        power = tl.exp(raw - tl.max(raw, axis=1)[:, None])
        scores = power / tl.sum(power, axis=1)[:, None]
    choice = scores
    if bias is not None:
        choice += tl.load(bias + expert, mask=exists, other=0.0).to(tl.float32)
    choice = tl.where(exists, choice, float("-inf"))
    if GROUPS > 1:
        choice = _within_groups(choice, experts // GROUPS, GROUPS, GROUPS_KEPT, GROUP_BEST, EB)
    ids = tl.zeros([row.shape[0], KB], dtype=tl.int32)
    weights = tl.zeros([row.shape[0], KB], dtype=tl.float32)
    taken = tl.zeros([row.shape[0], EB], dtype=tl.int32)
    for number in range(K):
        best = tl.max(choice, axis=1)[:, None]
        found = tl.min(tl.where(choice == best, expert, EB), axis=1)
        found = tl.minimum(found, experts - 1)[:, None]
        if bias is None:
            # One reduction less: the best is the score itself, but in a row without numbers.
            score = tl.where(best >= 0.0, best, float("nan"))
        else:
            score = tl.sum(tl.where(expert == found, scores, 0.0), axis=1)[:, None]
        choice = tl.where(expert == found, float("-inf"), choice)
        taken = tl.where(expert == found, 1, taken)
        ids = tl.where(turn == number, found, ids)
        weights = tl.where(turn == number, score, weights)
    if NORMALISE:
        weights = weights / (tl.sum(weights, axis=1)[:, None] + 1e-20)
    return ids, weights, taken


@triton.jit  # type: ignore[untyped-decorator]
def _within_groups(  # type: ignore[no-untyped-def]
    choice,
    size,
    GROUPS: tl.constexpr,  # noqa: N803
    GROUPS_KEPT: tl.constexpr,  # noqa: N803
    GROUP_BEST: tl.constexpr,  # noqa: N803
    EB: tl.constexpr,  # noqa: N803
):
    """Return `choice` without the experts of all but the best groups."""
    expert = tl.arange(0, EB)[None, :]
    ranked = tl.full(choice.shape, float("-inf"), tl.float32)
    for group in range(GROUPS):
        inside = expert // size == group
        rest = tl.where(inside, choice, float("-inf"))
        total = tl.zeros([choice.shape[0], 1], dtype=tl.float32)
        for _ in range(GROUP_BEST):
            best = tl.max(rest, axis=1)[:, None]
            found = tl.min(tl.where(rest == best, expert, EB), axis=1)[:, None]
            rest = tl.where(expert == found, float("-inf"), rest)
            total += best
        ranked = tl.where(inside, total, ranked)
    kept = tl.zeros(choice.shape, dtype=tl.int32)
    for _ in range(GROUPS_KEPT):
        best = tl.max(ranked, axis=1)[:, None]
        found = tl.min(tl.where(ranked == best, expert, EB), axis=1)[:, None] // size
        kept = tl.where(expert // size == found, 1, kept)
        ranked = tl.where(expert // size == found, float("-inf"), ranked)
    return tl.where(kept == 1, choice, float("-inf"))
