"""Experts in other places, in several places, and moved while serving: the logits stay the same."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from panel.server.messages import Generate, Rebalance
from panel.server.plan import Plan, Work
from tests.server.checkpoints import SHAPES, Checkpoints, agreement
from tests.server.plans import TEXTS, steps
from tests.server.ranks import Outcome, Ranks
from tests.server.support import DEADLINE, Nursery
from tests.server.test_parity import STEPPED, assert_equal, assert_predicted

Flags = dict[str, object]
REBALANCE = Plan(Work.REBALANCE)
EP: Flags = {"tp_size": 4, "ep_size": 4}
A2A: Flags = EP | {"moe_a2a_backend": "shm"}
DP: Flags = A2A | {"dp_attention": True}
OWNERS = [3, 0, 0, 1]


def shuffled(layers: int, slots: int, seed: int) -> list[list[int]]:
    rows = []
    for layer in range(layers):
        row = [slot % 16 for slot in range(slots)]
        random.Random(seed * 100 + layer).shuffle(row)
        rows.append(row)
    return rows


def plans_for(flags: Flags) -> list[Plan]:
    return steps(owners=OWNERS) if "dp_attention" in flags else steps()


def halves(outcome: Outcome) -> tuple[Outcome, Outcome]:
    middle = len(outcome.logits) // 2
    first = Outcome(outcome.logits[:middle], outcome.memory, outcome.pages, outcome.experts)
    return first, Outcome(outcome.logits[middle:], outcome.memory, outcome.pages, outcome.experts)


MODES: list[tuple[str, Flags]] = [
    ("v3-tied", EP),
    ("v3-tied", {"tp_size": 8, "ep_size": 4}),
    ("v3-apart", EP | {"tp_size": 2, "ep_size": 2}),
    ("v3-low-rank-groups", A2A),
    ("v3-low-rank-groups", EP | {"eplb_domains": 2}),
    ("v2-lite-yarn", DP),
    ("qwen3", {"tp_size": 4, "ep_size": 2, "allreduce_backend": "gloo"}),
]


@pytest.mark.parametrize(("shape", "flags"), MODES)
def test_logits_stay_the_same_through_shuffles_replicas_and_rebalances(
    shape: str, flags: Flags, checkpoints: Checkpoints, ranks: Ranks, tmp_path: Path
) -> None:
    reference = checkpoints[shape]
    path = tmp_path / "location.json"
    layers = SHAPES[shape][0].shape | SHAPES[shape][1]
    rows = shuffled(layers["num_hidden_layers"], 24, seed=1)
    path.write_text(json.dumps({"physical_to_logical_map": rows}))
    plans = plans_for(flags)
    outcome = ranks.run(
        *plans,
        REBALANCE,
        *plans,
        REBALANCE,
        model_path=reference.folder,
        init_expert_location=path,
        ep_num_redundant_experts=8,
        **STEPPED,
        **flags,
    )
    for half in halves(outcome):
        assert_equal(half, reference)
    assert_predicted(outcome)
    first, *others = outcome.experts
    assert all(report.table == first.table for report in others)
    # The same load once more: everything is already where it should be.
    assert first.last is not None
    assert first.last.moved == 0
    assert first.last.before == first.last.after
    assert first.last.after is not None
    assert first.last.after > 0.9


def test_every_mode_counts_the_same_load(checkpoints: Checkpoints, ranks: Ranks) -> None:
    loads = []
    for flags in (EP, {"tp_size": 8, "ep_size": 2}, A2A, DP):
        outcome = ranks.run(
            *plans_for(flags),
            model_path=checkpoints["v3-tied"].folder,
            **STEPPED,
            **flags,
        )
        loads.append(outcome.experts[0].load)
    # Prefill and two decode steps take each text but its last three tokens; then all of those, one
    # of each but the first text's, and the first text once more.
    rows = sum(map(len, TEXTS)) + len(TEXTS) - 1 + len(TEXTS[0])
    assert [sum(layer) for layer in loads[0]] == [4 * rows] * 2
    assert all(load == loads[0] for load in loads)


@pytest.mark.parametrize("flags", [EP, DP])
def test_experts_move_every_few_steps(flags: Flags, checkpoints: Checkpoints, ranks: Ranks) -> None:
    reference = checkpoints["v3-tied"]
    plans = plans_for(flags)
    outcome = ranks.run(
        *plans,
        model_path=reference.folder,
        ep_num_redundant_experts=4,
        eplb_interval=2,
        **STEPPED,
        **flags,
    )
    assert_equal(outcome, reference)
    assert [report.rebalances for report in outcome.experts] == [len(plans) // 2] * 4


def test_operators_rebalance_a_serving_engine(
    checkpoints: Checkpoints, nursery: Nursery, tmp_path: Path
) -> None:
    reference = checkpoints["v3-tied"]
    flags = DP | {"model_path": reference.folder, "ep_num_redundant_experts": 4}
    with nursery.gang(tmp_path, **flags) as gang:
        gang.wait_started()
        requests = [
            Generate(str(n), TEXTS[n % len(TEXTS)], max_new_tokens=40, temperature=0)
            for n in range(12)
        ]
        for request in requests:
            gang.send(request)
        while not any(answer.tokens for answer in gang.answers.values()):
            assert gang.receive(time.monotonic() + DEADLINE)
        for _ in range(3):
            gang.send(Rebalance())
        answers = gang.collect(*(request.rid for request in requests))
        stats = gang.wait_stats()
        assert stats.rebalances == 3
        assert stats.expert_balancedness is not None
        assert 0.3 < stats.expert_balancedness <= 1
        assert set(gang.terminate().values()) == {0}
    shares = [
        agreement(reference, request.tokens, answer.tokens)
        for request, answer in zip(requests, answers, strict=True)
    ]
    assert all(right for _, right in shares)
    assert sum(compared for compared, _ in shares) >= 0.95 * 40 * len(requests)
    moved = [line for line in gang.log("rank-3").splitlines() if "rebalanced: balancedness" in line]
    assert len(moved) == 3
    assert " 0 experts moved" not in moved[0]
