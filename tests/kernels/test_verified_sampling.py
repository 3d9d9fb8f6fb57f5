"""Verification sampled where the logits are: the texts and random numbers of the host's path."""

from __future__ import annotations

from array import array
from random import Random

import numpy as np
import torch

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.server.cuda.sampler import KernelSampler
from panel.server.flight import chosen
from panel.server.messages import Generate
from panel.server.plan import Plan, Segment, Work
from panel.server.sampler import sample
from panel.server.schedule import NOT_FINITE
from panel.server.sequence import Sequence
from panel.server.simulated import following

VOCABULARY, WIDTH = 40, 4
REAL = following(None)
REQUESTS = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 5},
    {"temperature": 1.3, "top_p": 0.8, "min_p": 0.02},
]


def sequences() -> list[Sequence]:
    return [
        Sequence(Generate(str(seed), [1], 99, **asked), 100, Random(seed))  # type: ignore[arg-type]
        for seed, asked in enumerate(REQUESTS)
    ]


def plan_of(made: list[Sequence]) -> Plan:
    pages = array("i", [1]).tobytes()
    segments = [Segment([1, *each.draft], 0, pages) for each in made]
    return Plan(Work.DECODE, segments, rows=len(made), width=WIDTH)


def test_the_device_chooses_what_the_host_does() -> None:
    """Drafts are right at first, wrong later, and of any length; half of the steps have none."""
    numbers = np.random.default_rng(3)
    host, device = sequences(), sequences()
    sampler = KernelSampler.into(torch.zeros(64, dtype=torch.int64))
    lengths = set()
    for step in range(12):
        logits = numbers.standard_normal((len(host) * WIDTH, VOCABULARY)).astype(np.float32) * 4
        for row, (one, other) in enumerate(zip(host, device, strict=True)):
            # What comes without drafts, from the same numbers, is right as far as it goes.
            trial = Sequence(one.request, 100, Random())
            trial.random.setstate(one.random.getstate())
            right = [
                sample(logits[row * WIDTH + n : row * WIDTH + n + 1], [trial], [0])[0].tokens[0]
                for n in range(WIDTH - 1)
            ]
            good = int(numbers.integers(WIDTH))
            draft = [*right[:good], *[VOCABULARY] * (WIDTH - 1 - good)]
            one.draft = other.draft = draft[: int(numbers.integers(WIDTH))] if step % 2 else []
        plan = plan_of(host)
        wanted = sample(logits, host, plan.logit_begins)
        flight = sampler.sample(torch.from_numpy(logits), device, WIDTH)
        found = chosen(flight.land(), plan, device, REAL)
        assert found == wanted
        lengths |= {len(choice.tokens) for choice in found}
    assert lengths == {1, 2, 3, 4}
    assert [each.number() for each in device] == [each.number() for each in host]


def test_a_plain_step_goes_on_with_the_numbers_looked_at() -> None:
    (_, one, *_), (_, other, *_) = sequences(), sequences()
    looked = one.numbers_ahead(3)
    one.use(1)
    logits = torch.randn(1, VOCABULARY)
    sampler = KernelSampler.into(torch.zeros(64, dtype=torch.int64))
    plan = Plan(Work.DECODE, [Segment([1], 0, b"")], rows=1)
    other.number()
    wanted = sample(logits.numpy(), [other], [0])
    assert chosen(sampler.sample(logits, [one], 1).land(), plan, [one], REAL) == wanted
    assert one.number() == other.number() == looked[2]


def test_a_row_that_is_not_finite_ends_its_sequence_alone() -> None:
    made = sequences()[:2]
    for each in made:
        each.draft = [1, 2, 3]
    logits = torch.randn(2 * WIDTH, VOCABULARY)
    logits[3, 5] = float("nan")
    landed = KernelSampler.into(torch.zeros(64, dtype=torch.int64)).sample(logits, made, WIDTH)
    first, second = chosen(landed.land(), plan_of(made), made, REAL)
    assert (first.tokens, first.error) == ([], NOT_FINITE)
    assert second.error is None
