"""Stop strings: the outcome does not depend on the cutting, and no part of one is shown."""

from __future__ import annotations

import itertools

from hypothesis import example, given
from hypothesis import strategies as st

from panel.server.frontend.stops import StopMatcher

words = st.text(alphabet="ab\n", max_size=30)
stops = st.lists(st.text(alphabet="ab\n", min_size=1, max_size=5), max_size=4).map(tuple)


def cut_at_stop(text: str, stops: tuple[str, ...]) -> str:
    """The text before the stop that completes first, by trying every prefix."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))]
    return text


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


@given(words, stops, st.lists(st.integers(0, 30), max_size=12))
@example("abab", ("abab", "ba"), [])
@example("aab", ("ab", "aab"), [1, 2])
def test_any_cutting_gives_the_text_before_the_first_complete_stop(
    text: str, stops: tuple[str, ...], cuts: list[int]
) -> None:
    matcher = StopMatcher(stops)
    expected = cut_at_stop(text, stops)
    shown = ""
    for piece in pieces_of(text, cuts):
        shown += matcher.push(piece)
        assert expected.startswith(shown)
        if matcher.matched:
            break
    assert matcher.matched == any(stop in text for stop in stops)
    assert shown + matcher.flush() == expected


def test_text_that_cannot_become_a_stop_is_shown_at_once() -> None:
    matcher = StopMatcher(("\n\nUser:",))
    assert matcher.push("one\ntwo") == "one\ntwo"
    assert matcher.push("\n") == ""
    assert matcher.push("three") == "\nthree"
