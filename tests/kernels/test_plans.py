"""Plans that were tuned for a device: kept in a file, and taken where all ranks find the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.kernels.expert_plan import HOPPER_SHARED, MEASURED, Plans
from panel.kernels.router import Routing
from panel.server.cuda.plans import keep_plans, plans_key, read_plans
from panel.server.figures import agreed
from panel.server.place import Place
from tests.kernels.test_experts import Shape, weights_of

ROUTING = Routing(8, 2)
WEIGHTS = weights_of(ROUTING, Shape(), torch.bfloat16)
TUNED = Plans({**MEASURED, 16: replace(MEASURED[16], parts=2)})


def test_plans_are_kept_for_one_share_of_one_model(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "experts.json"
    assert read_plans(file, WEIGHTS, ROUTING) is None
    other = weights_of(ROUTING, Shape(slots=4), torch.bfloat16)
    keep_plans(file, other, ROUTING, Plans(MEASURED))
    assert read_plans(file, WEIGHTS, ROUTING) is None
    keep_plans(file, WEIGHTS, ROUTING, TUNED)
    assert read_plans(file, WEIGHTS, ROUTING) == TUNED
    assert read_plans(file, other, ROUTING) == Plans(MEASURED)
    assert len({plans_key(WEIGHTS, routing) for routing in (ROUTING, Routing(8, 3))}) == 2


def test_buckets_that_were_not_tuned_are_as_measured(tmp_path: Path) -> None:
    file = tmp_path / "experts.json"
    keep_plans(file, WEIGHTS, ROUTING, Plans({16: TUNED.of(16)}))
    assert read_plans(file, WEIGHTS, ROUTING) == TUNED


def test_a_plan_that_was_altered_is_made_to_fit(tmp_path: Path) -> None:
    file = tmp_path / "experts.json"
    large = replace(MEASURED[512].down, rows=16, columns=512, stages=9)
    keep_plans(file, WEIGHTS, ROUTING, Plans({512: replace(MEASURED[512], down=large)}))
    plans = read_plans(file, WEIGHTS, ROUTING)
    assert plans is not None
    gate_up, tile = plans.of(512).gate_up, plans.of(512).down
    assert tile.rows == gate_up.rows
    assert tile.stages * (tile.rows + tile.columns) * tile.inner * 2 <= HOPPER_SHARED


@pytest.mark.parametrize("entry", [3, [], {"16": {}}, {"16": {"gate_up": 3}}, {"many": {}}])
def test_what_are_no_plans_is_told(
    entry: object, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "experts.json"
    file.write_text(json.dumps({plans_key(WEIGHTS, ROUTING): entry}))
    assert read_plans(file, WEIGHTS, ROUTING) is None
    assert "is not a file of plans of experts" in caplog.text


def place(*others: int) -> Place:
    """Return the place of a rank whose others vote so."""
    votes = SimpleNamespace(all=lambda value, roster: [value, *others])
    return cast(Place, SimpleNamespace(shared=SimpleNamespace(votes=votes, roster=None)))


def test_a_rank_alone_in_what_it_found_does_without() -> None:
    said: list[int] = []
    ask: Any = place()
    ask.shared.votes.all = lambda value, roster: said.append(value) or [value]
    assert agreed(ask, TUNED) is TUNED
    assert agreed(place(*said), TUNED) is TUNED
    assert agreed(place(*said), Plans(MEASURED)) is None
    assert agreed(place(*said), None) is None
