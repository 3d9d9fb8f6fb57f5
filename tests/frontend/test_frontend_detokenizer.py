"""Incremental decoding is exact and never shows half a character."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from panel.server.frontend.detokenizer import Detokenizer
from panel.server.frontend.text import Text


def pieces(detokenizer: Detokenizer, tokens: list[int]) -> list[str]:
    return [*(detokenizer.push(token) for token in tokens), detokenizer.flush()]


@given(tokens=st.lists(st.integers(0, 319), max_size=40))
def test_any_tokens_give_the_text_of_decoding_them_at_once(text: Text, tokens: list[int]) -> None:
    assert "".join(pieces(text.detokenizer(), tokens)) == text.decode(tokens)


@given(words=st.text(max_size=20))
def test_no_piece_holds_half_a_character(text: Text, words: str) -> None:
    shown = pieces(text.detokenizer(), text.encode(words))
    assert "".join(shown) == words
    if "\N{REPLACEMENT CHARACTER}" not in words:
        assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in shown)


def test_plain_text_comes_without_delay(text: Text) -> None:
    detokenizer = text.detokenizer()
    for token in text.encode("the quick brown fox")[1:]:
        assert detokenizer.push(token) == text.token_text(token)


def test_a_character_of_four_tokens_comes_whole_with_the_last(text: Text) -> None:
    detokenizer = text.detokenizer()
    assert [detokenizer.push(token) for token in text.encode("🦊")[1:]] == ["", "", "", "🦊"]


def test_an_unfinished_character_is_shown_as_such_at_the_end(text: Text) -> None:
    detokenizer = text.detokenizer()
    begun = text.encode("🦊")[1:-1]
    assert [detokenizer.push(token) for token in begun] == ["", "", ""]
    assert detokenizer.flush() == text.decode(begun)
