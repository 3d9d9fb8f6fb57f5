"""Weights that stay over a relaunch: the same logits, and not a byte of the checkpoint is read."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from panel.server.plan import Plan, Work
from tests.server.checkpoints import Checkpoint, Checkpoints
from tests.server.keeping import Keeping, keeping
from tests.server.plans import steps
from tests.server.ranks import Outcome, Ranks
from tests.server.test_parity import STEPPED, assert_predicted

Flags = dict[str, object]
A2A: Flags = {"tp_size": 2, "ep_size": 2, "moe_a2a_backend": "shm"}
MODES: list[tuple[str, Flags]] = [
    ("v3-tied", {"tp_size": 2}),
    ("v3-apart", {"tp_size": 2, "ep_size": 2}),
    ("v3-low-rank-groups", A2A),
    ("v2-lite-yarn", A2A | {"dp_attention": True}),
    ("qwen3", {"tp_size": 2, "dtype": "bfloat16"}),
    ("qwen3", {"tp_size": 1, "load_format": "dummy"}),
]


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keeping]:
    with keeping(tmp_path_factory.mktemp("kept")) as keeper:
        yield keeper


@pytest.fixture(scope="module")
def kept_ranks(keeper: Keeping) -> Iterator[Ranks]:
    """Ranks that find the weight keeper."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in keeper.env.items():
            patch.setenv(name, value)
        ranks = Ranks()
    yield ranks
    ranks.close()


def read(outcome: Outcome) -> list[int]:
    return [memory.weights_read for memory in outcome.memory]


def plans(flags: Flags) -> list[Plan]:
    return steps(owners=[1, 0, 0, 1]) if "dp_attention" in flags else steps()


def same(one: Outcome, other: Outcome) -> bool:
    pairs = zip(one.logits, other.logits, strict=True)
    return all(bool((a == b).all()) for a, b in pairs)


@pytest.mark.parametrize(("shape", "flags"), MODES)
def test_a_relaunch_finds_its_weights_and_gives_the_same_logits(
    shape: str, flags: Flags, checkpoints: Checkpoints, kept_ranks: Ranks, keeper: Keeping
) -> None:
    flags = STEPPED | flags | {"model_path": checkpoints[shape].folder, "keep_weights": "true"}
    todo, count = plans(flags), int(str(flags["tp_size"]))
    plain = kept_ranks.run(*todo, **flags | {"keep_weights": "false"})
    loaded = kept_ranks.run(*todo, **flags)
    keeper.wait(ranks=count, whole=count, users=0)
    found = kept_ranks.run(*todo, **flags | {"max_running_requests": 8})
    assert read(plain) == read(loaded)
    assert read(found) == [0] * count
    assert same(plain, loaded)
    assert same(plain, found)
    assert_predicted(loaded)
    assert_predicted(found)


@pytest.fixture
def tied(checkpoints: Checkpoints) -> Checkpoint:
    return checkpoints["v3-tied"]


def test_another_layout_type_or_checkpoint_is_loaded_and_the_old_one_let_go(
    tied: Checkpoint, kept_ranks: Ranks, keeper: Keeping
) -> None:
    flags: Flags = {"model_path": tied.folder, "keep_weights": "true", "tp_size": 2}
    kept_ranks.run(**flags)
    keeper.wait(whole=2, users=0)
    held = keeper.figures["bytes"]
    for change in ({"tp_size": 1}, {"dtype": "bfloat16"}, {"ep_size": 2}, {"context_length": 64}):
        assert all(read(kept_ranks.run(**flags | change))), change
    assert all(read(kept_ranks.run(**flags)))
    keeper.wait(bytes=held, ranks=2, whole=2, users=0)
    file = next(tied.folder.glob("*.safetensors"))
    os.utime(file)
    assert all(read(kept_ranks.run(**flags)))
    assert read(kept_ranks.run(**flags)) == [0, 0]


def test_weights_of_experts_that_were_moved_are_loaded_anew(
    checkpoints: Checkpoints, kept_ranks: Ranks
) -> None:
    flags: Flags = STEPPED | {
        "model_path": checkpoints["v3-apart"].folder,
        "keep_weights": "true",
        "tp_size": 2,
        "ep_size": 2,
    }
    todo = steps()
    first = kept_ranks.run(*todo, Plan(Work.REBALANCE), *todo, **flags)
    assert first.experts[0].last is not None
    assert first.experts[0].last.moved
    again = kept_ranks.run(*todo, **flags)
    assert any(read(again))
    half = Outcome(first.logits[: len(todo)], [], 0, [], [])
    assert same(half, again)


def test_a_weight_keeper_that_has_ended_is_no_obstacle(
    tied: Checkpoint, kept_ranks: Ranks, keeper: Keeping
) -> None:
    assert keeper.end() == 0
    outcome = kept_ranks.run(model_path=tied.folder, keep_weights="true", tp_size=1)
    assert all(read(outcome))
