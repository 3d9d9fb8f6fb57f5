"""One choice: tokens become text, stop strings and log probabilities agree."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from panel.server.frontend.choice import Choice, Piece
from panel.server.frontend.text import Text
from panel.server.messages import TokenLogprob, Tokens


def news(tokens: list[int], finish: str | None = None) -> Tokens:
    return Tokens("r", tokens, [TokenLogprob(token, -1.0) for token in tokens], finish)


def feed(choice: Choice, tokens: list[int], sizes: list[int]) -> list[Piece]:
    pieces = []
    for size in [*sizes, len(tokens)]:
        part, tokens = tokens[:size], tokens[size:]
        choice.push(news(part, None if tokens else "length"))
        pieces.append(choice.take())
        if choice.finish:
            break
    return pieces


@given(
    words=st.text(alphabet="the q🦊\n", max_size=20),
    stop=st.text(alphabet="the q🦊\n", min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 5), max_size=10),
)
def test_text_and_tokens_do_not_depend_on_how_they_come(
    text: Text, words: str, stop: str, sizes: list[int]
) -> None:
    tokens = text.encode(words)[1:]
    choice = Choice(0, text.detokenizer(), (stop,))
    pieces = feed(choice, tokens, sizes)
    whole = Choice(0, text.detokenizer(), (stop,))
    whole.push(news(tokens, "length"))
    answer = whole.take()
    assert "".join(piece.text for piece in pieces) == answer.text == words.split(stop)[0]
    assert [entry for piece in pieces for entry in piece.scored] == list(answer.scored)
    assert choice.tokens == whole.tokens
    assert choice.finish == answer.finish == ("stop" if stop in words else "length")


def test_a_stop_cuts_text_tokens_and_log_probabilities(
    text: Text, tokens_of: Callable[[str], list[int]]
) -> None:
    before, stop, after = tokens_of("fox"), tokens_of("XYZ"), tokens_of(" then")
    choice = Choice(0, text.detokenizer(), ("XYZ",))
    choice.push(news(before + stop + after))
    piece = choice.take()
    assert piece.text == "fox"
    assert [entry.logprob.token for entry in piece.scored] == before
    assert choice.tokens == len(before) + len(stop)


def test_held_text_holds_its_log_probabilities(
    text: Text, tokens_of: Callable[[str], list[int]]
) -> None:
    choice = Choice(0, text.detokenizer(), ("XY",))
    choice.push(news(tokens_of("X")))
    assert choice.take() == Piece(0, "", (), None)
    choice.push(news(tokens_of("Z")))
    released = choice.take()
    assert released.text == "XZ"
    assert len(released.scored) == 2


def test_what_follows_the_finish_counts_for_nothing(
    text: Text, tokens_of: Callable[[str], list[int]]
) -> None:
    choice = Choice(0, text.detokenizer(), ("o",))
    choice.push(news(tokens_of("fox")))
    choice.push(news(tokens_of("fox"), "length"))
    assert choice.take().text == "f"
    assert choice.finish == "stop"
