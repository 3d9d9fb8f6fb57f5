"""The sieve against reading every line."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from panel.triage.shapes import Sieve

HOT = re.compile(rb"error|fatal")
WORDS = st.sampled_from(
    [b"step 12 done", b"an error 7", b"fatal 0x3f", b"token 99", b"", b"deadbeef"]
)


@given(st.lists(st.lists(WORDS, min_size=1), max_size=6))
def test_picks_exactly_the_lines_that_match(blocks: list[list[bytes]]) -> None:
    sieve = Sieve(HOT)
    for lines in blocks:
        block = b"\n".join(lines)
        wanted = [index for index, line in enumerate(lines) if HOT.search(line)]
        assert sieve.pick(block, lines) == wanted


def test_flood_of_one_shape_is_looked_at_no_more() -> None:
    lines = [b"an error %d" % number for number in range(1000)]
    sieve = Sieve(HOT)
    assert len(sieve.pick(b"\n".join(lines), lines)) == 200
    assert sieve.pick(b"\n".join(lines), lines) == []
    assert sieve.pick(b"fatal", [b"fatal"]) == [0]


def test_endless_shapes_do_not_fill_memory() -> None:
    sieve = Sieve(HOT)
    for number in range(3):
        lines = [
            b"z" * (each % 999) + b"%d" % number + b"y" * (each // 999) for each in range(40000)
        ]
        sieve.pick(b"\n".join(lines), lines)
    assert len(sieve._dull) <= 1 << 16
