"""Where a cycle goes on by itself, in Triton's interpreter, against the plans of the host."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.kernels.draft_follow import Course, follow_drafts, follow_drafts_reference
from panel.kernels.draft_places import (
    Ring,
    Rows,
    draft_places,
    draft_places_reference,
    keep_features,
    keep_features_reference,
)
from panel.kernels.draft_verify import Verification, lay_out_verification
from panel.server.cuda.cycle import Cycle, Tokens
from panel.server.cuda.layout import Paper, lay_out
from panel.server.messages import Generate
from panel.server.options import resolve
from panel.server.plan import Plan, Segment, Work
from panel.server.sequence import Sequence
from panel.server.simulated import Acceptance, acceptance, following, is_taken
from tests.server.plans import PAGE

WIDTH, TOKENS = 4, 3
"""Few tokens, so that drafts are often right."""
PAPER = Paper(PAGE, 96, WIDTH)
RING = Ring(pages=64, recent=2 * WIDTH, page_size=PAGE, context=PAPER.context)
CPU = torch.device("cpu")


def course_of(cycle: Cycle) -> Course:
    arrays = {**cycle.asked(), **cycle.course(WIDTH)}
    return Course(**{name: torch.from_numpy(array) for name, array in arrays.items()})


def stale(cycle: Cycle) -> np.ndarray:
    """Return the pages as the device has them: behind them are those of somebody else."""
    pages = np.full((cycle.rows, PAPER.pages), RING.pages - 1, np.int32)
    for row, segment in enumerate(cycle.segments):
        held = np.frombuffer(segment.pages, np.int32)
        pages[row, : len(held)] = held
    return pages


def copied(course: Course) -> Course:
    return Course(*(each.clone() for each in course))


@dataclass
class Case:
    """A cycle, what was drafted in it and what was sampled."""

    cycle: Cycle
    drafts: torch.Tensor
    sampled: torch.Tensor


@st.composite
def cases(draw: st.DrawFn) -> Case:
    numbers = draw(st.randoms(use_true_random=False))
    width = draw(st.integers(2, WIDTH))
    count = draw(st.integers(1, 4))
    rows = draw(st.integers(count, 5))
    pages = list(range(1, RING.pages - 1))
    numbers.shuffle(pages)
    segments = []
    for seat in numbers.sample(range(8), count):
        start = numbers.randrange(WIDTH, PAPER.context - WIDTH)
        size = numbers.randrange(1, width + 1)
        needed = -(-(start + size) // PAGE) + numbers.randrange(2)
        fresh = [numbers.randrange(TOKENS) for _ in range(numbers.randrange(WIDTH))]
        held = np.array([pages.pop() for _ in range(needed)], np.int32)
        tokens = [numbers.randrange(TOKENS), *[0] * (size - 1)]
        segments.append(Segment(tokens, start, held.tobytes(), seat=seat, fresh=fresh))
    cycle = Cycle(segments, rows, width)
    generator = torch.Generator().manual_seed(numbers.randrange(1 << 30))
    drafts = torch.randint(TOKENS, (rows, WIDTH - 1), generator=generator)
    sampled = torch.randint(TOKENS, (rows, width), generator=generator)
    return Case(cycle, drafts, sampled)


def accepting(rate: float | None) -> Acceptance | None:
    flags = {"model-path": "moe-tiny", "speculative-algorithm": "eagle3"}
    if rate is not None:
        flags["speculative-simulate-acceptance"] = str(rate)
    return acceptance(resolve(flags))


def later(case: Case, rate: float | None, length: int) -> Cycle:
    """Return the next cycle as the host plans it, with at most so many drafts."""
    follow, segments = following(accepting(rate)), []
    for row, segment in enumerate(case.cycle.segments):
        sequence = Sequence(Generate("", [0] * (segment.start + 1), 9), 999, Random())
        sequence.seat = segment.seat
        sequence.draft = case.drafts[row, : len(segment.tokens) - 1].tolist()
        *fresh, last = follow(sequence, case.sampled[row, : len(segment.tokens)].tolist())
        start = segment.start + 1 + len(fresh)
        tokens = [last, *[0] * length]
        segments.append(structs.replace(segment, tokens=tokens, start=start, fresh=fresh))
    return Cycle(segments, case.cycle.rows, 1 + length)


def tokens_of(case: Case) -> Tokens:
    sampled: Tokens = case.sampled[: len(case.cycle.segments)].numpy().ravel()
    return sampled


@settings(max_examples=30, deadline=None)
@given(cases(), st.sampled_from([None, 0.0, 0.6, 1.0]))
def test_the_device_goes_on_where_the_host_does(case: Case, rate: float | None) -> None:
    course = course_of(case.cycle)
    reference = copied(course)
    taken = None if rate is None else partial(is_taken, rate=rate)
    follow_drafts(case.sampled, case.drafts, course, rate)
    follow_drafts_reference(case.sampled, case.drafts, reference, taken)
    wanted = course_of(later(case, rate, 0))
    for name in ("starts", "seats", "seen", "tokens"):
        found = getattr(course, name)
        assert torch.equal(found, getattr(reference, name)), name
        assert torch.equal(found, getattr(wanted, name)), name


@settings(max_examples=30, deadline=None)
@given(cases())
def test_places_and_features(case: Case) -> None:
    course, table = course_of(case.cycle), torch.from_numpy(stale(case.cycle))
    found, wanted = (Rows.of(WIDTH, case.cycle.rows, CPU) for _ in range(2))
    draft_places(course, table, RING, found)
    draft_places_reference(course, table, RING, wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.equal(ours, theirs)
    features = torch.zeros(2, RING.pages + 8 * RING.recent, 5)
    known = torch.randn(case.cycle.rows * case.cycle.width, 5)
    keep_features(known, course, table, RING, features[0])
    keep_features_reference(known, course, table, RING, features[1])
    assert torch.equal(features[0], features[1])
    assert features[:, 0].eq(0).all()


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(0, WIDTH - 1))
def test_going_on_never_leaves_a_sequences_pages(case: Case, length: int) -> None:
    """Where the next cycle is the one expected, all that it needs was known before."""
    after = later(case, None, length)
    course = course_of(case.cycle)
    follow_drafts(case.sampled, case.drafts, course)
    table = torch.from_numpy(stale(case.cycle))
    rows = Rows.of(WIDTH, case.cycle.rows, CPU)
    draft_places(course, table, RING, rows)
    slots = rows.slots.view(-1, case.cycle.rows)
    enough = True
    for row, segment in enumerate(after.segments):
        own = {0, *np.frombuffer(segment.pages, np.int32).tolist()}
        assert set((slots[:, row] // PAGE).tolist()) <= own
        # The last token known, and all drafts but the last, of which nothing is seen.
        seen = slots[[0, *range(WIDTH, WIDTH + max(0, length - 1))], row]
        enough = enough and bool((seen // PAGE > 0).all())
    if case.cycle.goes_on(after, tokens_of(case), PAGE):
        assert enough


@settings(max_examples=60, deadline=None)
@given(cases())
def test_the_device_lays_out_what_the_host_does(case: Case) -> None:
    after = later(case, None, WIDTH - 1)
    course = course_of(case.cycle)
    follow_drafts(case.sampled, case.drafts, course)
    plan = Plan(Work.DECODE, list(after.segments), rows=after.rows, width=WIDTH)
    arrays = lay_out(plan, PAPER, WIDTH).arrays
    wanted = Verification(*(torch.from_numpy(arrays[name]) for name in Verification._fields))
    count = len(after.segments)
    wanted.tokens.view(-1, WIDTH)[:, 1:] = case.drafts
    found = Verification(*(each.clone().fill_(1) for each in wanted))
    table = torch.from_numpy(stale(case.cycle))
    lay_out_verification(course, case.drafts, table, RING, found)
    for name, ours, theirs in zip(Verification._fields, found, wanted, strict=True):
        if name != "slots" or case.cycle.foresees(after, WIDTH, PAGE):
            assert torch.equal(ours, theirs), name
    own = [{0, *np.frombuffer(each.pages, np.int32).tolist()} for each in after.segments]
    own += [{0}] * (after.rows - count)
    for pages, slots in zip(own, found.slots.view(-1, WIDTH), strict=True):
        assert set((slots // PAGE).tolist()) <= pages


def one(**changed: object) -> Segment:
    pages = np.array([3, 4], np.int32).tobytes()
    return structs.replace(Segment([1, 0, 0], PAGE, pages, seat=1), **changed)  # type: ignore[arg-type]


AFTER = {"start": PAGE + 2, "fresh": [7]}
SAMPLED = np.array([7, 1, 9])
"""Whatever has to go on is further by two tokens, of which the last one is 1."""


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({}, True),
        ({"tokens": [1]}, True),
        ({"seat": 2}, False),
        ({"start": PAGE}, False),
        ({"tokens": [2, 0, 0]}, False),
        ({"fresh": [7, 8]}, False),
        ({"start": PAGE + 4, "fresh": [7, 8, 9]}, False),
        ({"pages": np.array([3, 5], np.int32).tobytes()}, False),
        ({"pages": np.array([3, 4, 9], np.int32).tobytes()}, True),
    ],
)
def test_another_plan_is_not_gone_on_to(changed: dict[str, object], same: bool) -> None:
    before = Cycle([one()], 2, 3)
    after = one(**(AFTER | changed))
    assert before.goes_on(Cycle([after], 2, 3), SAMPLED, PAGE) is same
    assert not before.goes_on(Cycle([after], 4, 3), SAMPLED, PAGE)
    assert not before.goes_on(Cycle([after, one(seat=0)], 2, 3), SAMPLED, PAGE)
    assert not before.goes_on(Cycle([], 2, 3), SAMPLED, PAGE)


def test_only_a_whole_verification_is_foreseen() -> None:
    before, after = Cycle([one()], 1, 3), one(**AFTER)
    assert before.foresees(Cycle([after], 1, 3), 3, PAGE)
    assert not before.foresees(Cycle([after], 1, 3), 4, PAGE)
    assert not before.foresees(Cycle([structs.replace(after, tokens=[1, 0])], 1, 3), 3, PAGE)
    assert before.foresees(Cycle([structs.replace(after, start=2 * PAGE - 3)], 1, 3), 3, PAGE)
    assert not before.foresees(Cycle([structs.replace(after, start=2 * PAGE - 2)], 1, 3), 3, PAGE)


def test_pages_that_were_not_known_yet() -> None:
    """A token at the end of its last page can be seen, but not the draft after it."""
    end = 2 * PAGE - 1
    before = Cycle([one(start=end - 2)], 1, 3)
    after = partial(one, start=end, fresh=[7], pages=np.array([3, 4, 5], np.int32).tobytes())
    assert before.goes_on(Cycle([after(tokens=[1, 0])], 1, 2), SAMPLED, PAGE)
    assert not before.goes_on(Cycle([after(tokens=[1, 0, 0])], 1, 3), SAMPLED, PAGE)


def test_simulated_acceptance_has_its_rate() -> None:
    """6000 places of ten sequences; the bounds are five standard deviations."""
    found = [is_taken(seat, position, 0.7) for seat in range(10) for position in range(600)]
    assert abs(sum(found) / len(found) - 0.7) < 5 * (0.7 * 0.3 / len(found)) ** 0.5
    pairs = list(pairwise(found))
    assert abs(sum(a and b for a, b in pairs) / len(pairs) - 0.49) < 5 * 0.5 / len(pairs) ** 0.5
