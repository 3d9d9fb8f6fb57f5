"""Plans of drafts and verification whose outcome is known beforehand."""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass

from panel.server.plan import Plan, Segment, Work
from tests.server.speculative.heads import Head

PAGE = 16
STEPS = 3


@dataclass
class Text:
    """A sequence as the scheduler would have it."""

    tokens: list[int]
    pages: list[int]
    seat: int
    owner: int = 0
    computed: int = 0
    drafted: int = 0

    def segment(self, end: int, *, logits: bool = True) -> Segment:
        """Return the segment that prefills up to `end`."""
        tokens = self.tokens[self.computed : end]
        return self._segment(tokens, end, logits)

    def cycle(self, drafts: int) -> Segment:
        """Return the segment that decodes with so many tokens left open, as after it too."""
        end = self.computed + 1 + 2 * drafts
        return self._segment([self.tokens[-1], *[0] * drafts], end, True)

    def _segment(self, tokens: list[int], end: int, logits: bool) -> Segment:
        table = array("i", self.pages[: -(-end // PAGE)]).tobytes()
        fresh = self.tokens[self.drafted : self.computed]
        return Segment(tokens, self.computed, table, logits, self.owner, self.seat, fresh)


@dataclass
class Expected:
    """What one plan has to give."""

    text: list[int]
    """Prompt and answer before it."""
    drafts: list[int]
    sure: bool
    """Whether the reference's guesses are far enough apart to be compared."""


def cycles(
    head: Head, owners: tuple[int, ...] = (0, 0, 0, 0), seed: int = 1
) -> tuple[list[Plan], list[list[Expected]]]:
    """Return plans and, for each, what its decoding sequences have to give.

    Prompts come in chunks that end within pages and at their ends; the third text begins with two
    pages of the first one; after each cycle a part of the drafts is accepted. Now and then a step
    has no drafts, or another prompt beside it.
    """
    rng = random.Random(seed)
    first = [rng.randrange(512) for _ in range(40)]
    prompts = [first, [rng.randrange(512) for _ in range(33)], [*first[:32], 7, 8, 9], [5, 6]]
    taken = dict.fromkeys(owners, 1)
    texts = []
    for number, (prompt, owner) in enumerate(zip(prompts, owners, strict=True)):
        pages = list(range(taken[owner], taken[owner] + 6))
        taken[owner] += 6
        texts.append(Text(prompt, pages[::-1], seat=number, owner=owner))
    plans: list[Plan] = []
    wanted: list[list[Expected]] = []

    def prefill(text: Text, end: int, beside: list[Text] | None = None) -> None:
        decoding = beside or []
        segments = [each.segment(each.computed + 1) for each in decoding]
        segments.append(text.segment(end, logits=end == len(text.tokens)))
        rows = max((owners.count(owner) for owner in owners), default=0) if decoding else 0
        plans.append(
            Plan(
                Work.MIXED if decoding else Work.PREFILL,
                segments,
                rows=rows,
                decodes=len(decoding),
                extends=any(segment.fresh for segment in segments),
            )
        )
        wanted.append([])
        for each in decoding:
            each.computed = each.drafted = len(each.tokens)
            each.tokens.append(rng.randrange(512))
        text.computed = text.drafted = end

    for end in (16, 27, 40):
        prefill(texts[0], end)
    for end in (10, 33):
        prefill(texts[1], end)
    if owners[2] == owners[0]:
        texts[2].pages[:2] = texts[0].pages[:2]
        texts[2].computed = texts[2].drafted = 32
    prefill(texts[2], 35)
    for text in texts[:3]:
        text.tokens.append(rng.randrange(512))

    def cycle(members: list[Text], width: int, extends: bool) -> None:
        segments = [text.cycle(width - 1) for text in members]
        rows = max(owners.count(owner) for owner in owners)
        plans.append(Plan(Work.DECODE, segments, rows=rows, width=width, extends=extends))
        expected = []
        for text in members:
            drafts, margin = head.drafts(text.tokens, width - 1) if width > 1 else ([], 1.0)
            expected.append(Expected(list(text.tokens), drafts, margin > 1e-3))
            accepted = rng.randrange(width)
            if extends:
                text.drafted = text.computed + 1
            text.computed += accepted + 1
            text.tokens += [*drafts[:accepted], rng.randrange(512)]
        wanted.append(expected)

    for width, extends in ((4, True), (4, True), (1, False), (1, False), (3, True), (4, True)):
        cycle(texts[:3], width, extends)
    prefill(texts[3], 2, beside=texts[:3])
    texts[3].tokens.append(rng.randrange(512))
    for width in (4, 2):
        cycle(texts, width, True)
    return plans, wanted
