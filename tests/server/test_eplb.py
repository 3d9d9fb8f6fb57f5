"""Which expert goes where: properties of the algorithm, of the moves and of the choice."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from panel.server.config import parse_config
from panel.server.eplb import balance, balancedness, settle
from panel.server.location import initial_location
from panel.server.moves import plan_moves
from panel.server.options import OptionError, Options, resolve
from panel.server.parallel import Shard
from panel.server.placement import Placement, replica_rule
from tests.server.test_shapes import A2A, EP, V3


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], int, int, int, int]:
    """Draw (load, slots, ranks, groups, domains)."""
    domains = draw(st.sampled_from([1, 1, 2, 4]))
    ranks = domains * draw(st.integers(1, 4))
    groups = domains * draw(st.integers(1, 3))
    experts = groups * draw(st.integers(1, 6))
    slots = -(-experts // ranks) * ranks + ranks * draw(st.integers(0, 3))
    load = draw(st.lists(st.integers(0, 1000), min_size=experts, max_size=experts))
    return load, slots, ranks, groups, domains


@given(problems())
def test_every_expert_has_a_slot_and_the_hottest_have_more(
    problem: tuple[list[int], int, int, int, int],
) -> None:
    load, slots, ranks, groups, domains = problem
    (table,) = balance([load], slots, ranks, groups=groups, domains=domains)
    replicas = Counter(table)
    assert len(table) == slots
    assert set(replicas) == set(range(len(load)))
    size = len(load) // groups
    homes: dict[int, set[int]] = {}
    for slot, expert in enumerate(table):
        homes.setdefault(expert // size, set()).add(slot // (slots // domains))
    assert all(len(home) == 1 for home in homes.values())
    for domain in range(domains):
        local = [expert for expert in replicas if homes[expert // size] == {domain}]
        worst = max(load[expert] / replicas[expert] for expert in local)
        for expert in local:
            if replicas[expert] > 1:
                assert load[expert] / (replicas[expert] - 1) >= worst


@given(problems())
def test_no_rank_is_above_another_by_more_than_its_heaviest_replica(
    problem: tuple[list[int], int, int, int, int],
) -> None:
    load, slots, ranks, groups, _ = problem
    (table,) = balance([load], slots, ranks, groups=groups)
    replicas = Counter(table)
    size = slots // ranks
    each = [load[expert] / replicas[expert] for expert in table]
    sums = [sum(each[begin : begin + size]) for begin in range(0, slots, size)]
    assert max(sums) - min(sums) <= max(each) + 1e-9
    value = balancedness(np.array([load]), np.array([table]), ranks)
    assert (value is None) == (not any(load))
    assert value is None or value == pytest.approx(sum(sums) / ranks / max(sums))


def test_the_published_example_comes_out_as_published() -> None:
    load = [
        [90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
        [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27],
    ]
    published = (
        (5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1),
        (7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1),
    )

    def pairs(table: tuple[int, ...]) -> list[list[int]]:
        return sorted(sorted(table[slot : slot + 2]) for slot in range(0, 16, 2))

    table = balance(load, 16, 8, groups=4, domains=2)
    assert [pairs(layer) for layer in table] == [pairs(layer) for layer in published]


@given(problems(), st.randoms(use_true_random=False))
def test_settling_only_reorders_ranks_and_moves_only_newcomers(
    problem: tuple[list[int], int, int, int, int], random: Any
) -> None:
    load, slots, ranks, *_ = problem
    old = [slot % len(load) for slot in range(slots)]
    random.shuffle(old)
    new = balance([load], slots, ranks)
    (settled,) = settle((tuple(old),), new, ranks)
    size = slots // ranks
    for begin in range(0, slots, size):
        before, after = Counter(old[begin : begin + size]), Counter(settled[begin : begin + size])
        assert after == Counter(new[0][begin : begin + size])
        kept = sum(
            a == b
            for a, b in zip(old[begin : begin + size], settled[begin : begin + size], strict=True)
        )
        assert kept == (before & after).total()


@given(problems(), st.randoms(use_true_random=False))
def test_moves_bring_every_expert_to_its_new_slot(
    problem: tuple[list[int], int, int, int, int], random: Any
) -> None:
    load, slots, groups, *_ = problem
    old = [slot % len(load) for slot in range(slots)]
    new = list(old)
    random.shuffle(new)
    moves = plan_moves(old, new, groups)
    size = slots // groups
    held = list(old)
    for slot, source in moves.local.items():
        assert slot // size == source // size
        held[slot] = old[source]
    for handed in moves.rounds:
        assert all(source // size == home for home, source in handed.items())
        for slot, source in moves.remote.items():
            if source in handed.values():
                held[slot] = old[source]
    assert held == new


@given(problems(), st.booleans(), st.integers(0, 40))
def test_a_row_goes_to_one_replica_and_all_ranks_agree_on_it(
    problem: tuple[list[int], int, int, int, int], dispatching: bool, row: int
) -> None:
    load, slots, ranks, groups, domains = problem
    (table,) = balance([load], slots, ranks, groups=groups, domains=domains)
    size, near = slots // ranks, ranks // domains
    choices = []
    for rank in range(ranks):
        shard = Shard(rank, ranks, ranks, dispatching=dispatching, domains=domains)
        period, turn = replica_rule(table, shard)
        picked = {
            expert: slot for slot, expert in enumerate(table) if row % period[slot] == turn[slot]
        }
        assert len(picked) == len(load)
        choices.append(picked)
        for expert, slot in picked.items():
            homes = {other // size for other in range(slots) if table[other] == expert}
            if dispatching and rank in homes:
                assert slot // size == rank
            elif dispatching and rank // near in {home // near for home in homes}:
                assert slot // size // near == rank // near
    assert dispatching or all(choice == choices[0] for choice in choices)


def test_replicas_share_the_rows_and_keep_their_weights() -> None:
    experts = [0, 1, 2, 0, 1, 0]
    chosen = torch.rand(12, 3)
    total = torch.zeros(12, 3)
    for rank in range(3):
        placement = Placement.of(experts, Shard(rank, 3, 3), 3, None)
        local = placement.local(chosen)
        for number, slot in enumerate(range(placement.own.start, placement.own.stop)):
            assert (local[:, number] > 0).sum() == 12 // experts.count(experts[slot])
            total[:, experts[slot]] += local[:, number]
    assert torch.equal(total, chosen)


def flags(path: Path, **more: str) -> Options:
    return resolve(EP | {"init-expert-location": str(path)} | more)


def write(path: Path, value: object) -> Path:
    if path.suffix == ".pt":
        torch.save(value, path)
    else:
        path.write_text(json.dumps(value))
    return path


GOOD = [list(range(15, -1, -1))] * 2


@pytest.mark.parametrize("name", ["table.json", "table.pt"])
@pytest.mark.parametrize("rows", [GOOD, [[0] * 16, *GOOD]])
def test_a_location_file_is_read(name: str, rows: list[list[int]], tmp_path: Path) -> None:
    path = write(tmp_path / name, {"physical_to_logical_map": rows})
    assert initial_location(parse_config(V3), flags(path)) == tuple(map(tuple, GOOD))


HOT = [[1] * 9 + [60] + [1] * 6, [40, 30] + [2] * 14]


@pytest.mark.parametrize("layers", [HOT, [[0] * 16, *HOT]])
@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("name", ["counts.json", "counts.pt"])
def test_counts_of_the_recorder_decide_the_places(
    name: str, steps: bool, layers: list[list[int]], tmp_path: Path
) -> None:
    value: object = [layers, layers] if steps else layers
    if name.endswith(".pt"):
        value = torch.tensor(value, dtype=torch.int32)
    path = write(tmp_path / name, {"rank": 0, "logical_count": value})
    options = flags(path, **{"ep-num-redundant-experts": "8"})
    table = initial_location(parse_config(V3), options)
    assert table == balance(HOT, 24, options.ep_size, groups=1)
    assert table[0].count(9) > 2


def test_passes_of_the_recorder_decide_the_places(tmp_path: Path) -> None:
    slots = torch.tensor([[15 - expert for expert in range(16)]] * 2)
    counts = torch.tensor(HOT, dtype=torch.int32).flip(1)
    records = [{"rank": 0, "forward_pass_id": n, "global_physical_count": counts} for n in (1, 2)]
    content = {"records": records, "last_physical_to_logical_map": slots}
    options = flags(write(tmp_path / "a.pt", content), **{"ep-num-redundant-experts": "8"})
    assert initial_location(parse_config(V3), options) == balance(HOT, 24, options.ep_size)


def test_the_trivial_location_goes_round_with_redundant_experts() -> None:
    options = resolve(A2A | {"ep-num-redundant-experts": "8"})
    table = initial_location(parse_config(V3), options)
    assert table == ((*range(16), *range(8)),) * 2


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("a.json", {"rank": 0}, "it has neither physical_to_logical_map nor logical_count"),
        ("a.json", {"logical_count": []}, "it has 0 layers, the model 3, of which"),
        ("a.json", {"logical_count": [[1] * 16, [1] * 15]}, "layer 2 counts 15 experts; there are"),
        ("a.json", {"logical_count": [[-1] * 16] * 2}, "logical_count has counts below 0"),
        ("a.json", {"logical_count": [[[1]], [[1, 2]]]}, "logical_count has steps of different"),
        ("a.pt", {"logical_count": torch.rand(2, 16)}, "logical_count is no table of whole numb"),
        ("a.json", {"records": [], "last_physical_to_logical_map": GOOD}, "differ in layers"),
        ("a.json", {"records": [5], "last_physical_to_logical_map": GOOD}, "records is no list"),
        ("a.json", {"physical_to_logical_map": GOOD[:1]}, "it has 1 layers, the model 3, of which"),
        ("a.json", {"physical_to_logical_map": [list(range(15))] * 2}, "layer 1 has 15 slots"),
        ("a.json", {"physical_to_logical_map": [GOOD[0], [0] * 16]}, "layer 2 has no slot for exp"),
        ("a.pt", {"physical_to_logical_map": [[16, *range(15)]] * 2}, "layer 1 names expert 16"),
        ("a.pt", {"physical_to_logical_map": torch.zeros(2, 16)}, "no table of whole numbers"),
        ("a.json", {"physical_to_logical_map": {"0": 1}}, "no table of whole numbers"),
        ("a.yaml", {}, "ends neither with .json nor with .pt"),
        ("a.json", [], "it is no object with keys"),
    ],
)
def test_a_location_that_does_not_fit_names_model_class_and_reason(
    name: str, value: object, words: str, tmp_path: Path
) -> None:
    raw = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": V3}
    path = write(tmp_path / name, value)
    with pytest.raises(OptionError, match=f"model class KimiK25.*: .*{words}.*; use trivial or"):
        initial_location(parse_config(raw), flags(path))


def test_a_missing_location_file_is_named(tmp_path: Path) -> None:
    for name in ("missing.json", "missing.pt"):
        with pytest.raises(OptionError, match=f"{name}: does not fit .*No such file"):
            initial_location(parse_config(V3), flags(tmp_path / name))
    (tmp_path / "torn.pt").write_bytes(b"torn")
    with pytest.raises(OptionError, match=r"torn\.pt: does not fit"):
        initial_location(parse_config(V3), flags(tmp_path / "torn.pt"))
