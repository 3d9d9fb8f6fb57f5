"""Steps that the device samples: what their plans say, and who runs them how."""

from __future__ import annotations

from collections.abc import Sequence as Sequences
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from panel.server.flight import Landed
from panel.server.gang import _out_of_memory
from panel.server.life import Life
from panel.server.messages import Generate
from panel.server.plan import Plan, Segment, Work, decode_plan, encode_plan, with_sampled
from panel.server.roster import PeerLostError
from panel.server.runner import Runner
from panel.server.sequence import Sequence
from panel.server.startup import _prepare_buckets


class Device:
    """A forward and a sampler that note what they are asked for."""

    def __init__(self, good: bool = True) -> None:
        self.good = good
        self.calls: list[str] = []

    def __call__(self, plan: Plan, *, poisoned: bool) -> tuple[torch.Tensor, None]:
        self.calls.append(f"forward{' poisoned' * poisoned}")
        return torch.full((len(plan.logit_begins) * plan.width, 4), 7.0), None

    def serves(self, sequences: Sequences[Sequence]) -> bool:
        return self.good

    def sample(self, logits: torch.Tensor, sequences: Sequences[Sequence], width: int) -> Device:
        self.calls.append(f"sample {logits.shape[0]} for {len(sequences)} of {width}")
        return self

    def whole(self, logits: torch.Tensor, plan: Plan) -> torch.Tensor:
        self.calls.append("whole")
        return logits

    def follow(self, count: int) -> None:
        self.calls.append(f"follow {count}")

    def done(self) -> bool:
        return True

    def land(self) -> Landed:
        return Landed([], [], [])


class Calm:
    poisoned = False


def runner_of(device: Device | None) -> Runner:
    forward = cast(Any, device or Device())
    return Runner(
        forward=forward,
        logits=torch.zeros(8, 8),
        columns=slice(0, 4),
        rebalancer=None,
        interval=0,
        life=cast(Life, Calm()),
        device_sampler=cast(Any, device),
    )


def sequence() -> Sequence:
    return Sequence(Generate("a", [1], 9), 10, Random(1))


DECODE = Plan(Work.DECODE, [Segment([1, 2], 3, b""), Segment([-2, 4], 8, b"")], rows=2, width=2)
SCORED = Plan(Work.PREFILL, [Segment([1, 2], 0, b"", scored=True)])


@pytest.mark.parametrize(
    ("device", "plan", "serves"),
    [
        (Device(), DECODE, True),
        (Device(good=False), DECODE, False),
        (None, DECODE, False),
        (Device(), SCORED, False),
        (Device(), Plan(Work.IDLE), False),
        (Device(), Plan(Work.REBALANCE), False),
    ],
)
def test_the_device_serves_steps_whose_logits_no_host_wants(
    device: Device | None, plan: Plan, serves: bool
) -> None:
    assert runner_of(device).serves(plan, [sequence()]) is serves


def test_rank_0_samples_what_the_others_follow_and_nobody_fills_the_shared_logits() -> None:
    leader, follower = Device(), Device()
    one, other = runner_of(leader), runner_of(follower)
    assert one.launch(DECODE, [sequence(), sequence()]) is leader
    other.join(decode_plan(encode_plan(DECODE)))
    assert leader.calls == ["forward", "whole", "sample 4 for 2 of 2"]
    assert follower.calls == ["forward", "whole", "follow 4"]
    assert one.steps == other.steps == 1
    assert not one.logits.any()
    assert not other.logits.any()


tokens = st.lists(st.integers(-4, 50), min_size=1, max_size=4)


@given(st.lists(tokens, min_size=1, max_size=4), st.booleans())
def test_plans_travel_whole_and_learn_their_tokens(texts: list[list[int]], on_device: bool) -> None:
    sampled = [90, 91, 92, 93]
    segments = [Segment(text, 5, b"abcd", owner=1) for text in texts]
    plan = Plan(Work.DECODE, segments, rows=len(texts), on_device=on_device)
    assert decode_plan(encode_plan(plan)) == plan
    known = with_sampled(plan, sampled)
    assert known.on_device is on_device
    assert [segment.tokens for segment in known.segments] == [
        [sampled[-1 - token] if token < 0 else token for token in text] for text in texts
    ]
    assert [segment.owner for segment in known.segments] == [1] * len(texts)


class Calmer(Calm):
    def progress(self, done: int, total: int, detail: int = 0) -> None:
        pass


def test_what_graphs_keep_is_told_without_what_torch_has_cached(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept, cached = 5 << 20, 900 << 20

    def prepare(rows: int, width: int) -> None:
        nonlocal kept, cached
        kept, cached = kept + (rows << 20), 7 << 20

    def empty() -> None:
        nonlocal cached
        cached = 0

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", empty)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: kept + cached)
    runner = runner_of(None)
    runner.forward = cast(Any, SimpleNamespace(prepare=prepare))
    with caplog.at_level("INFO"):
        assert _prepare_buckets(runner, (1, 4), 0, cast(Life, Calmer())) == 5 << 20
    assert [line.rpartition(", ")[2] for line in caplog.messages] == [
        "4.0 MiB of the GPU",
        "1.0 MiB of the GPU",
    ]


@pytest.mark.parametrize(
    ("first", "raised", "text"),
    [
        (KeyError("place"), RuntimeError, "batch size 4: 'place'"),
        (torch.OutOfMemoryError("no room"), RuntimeError, "batch size 4: no room"),
        (PeerLostError("rank 1 is gone"), PeerLostError, "rank 1 is gone"),
    ],
)
def test_a_failed_capture_says_its_batch_size_and_first_cause(
    first: Exception, raised: type[Exception], text: str
) -> None:
    def prepare(rows: int, width: int) -> None:
        if isinstance(first, PeerLostError):
            raise first
        try:
            raise first
        except Exception as error:
            raise ValueError("the capture is invalid") from error

    runner = runner_of(None)
    runner.forward = cast(Any, SimpleNamespace(prepare=prepare))
    with pytest.raises(raised) as caught:
        _prepare_buckets(runner, (1, 4), 0, cast(Life, Calmer()))
    assert str(caught.value) == text
    assert _out_of_memory(caught.value) is isinstance(first, torch.OutOfMemoryError)
