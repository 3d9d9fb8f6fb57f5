from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.logs import decode as module
from panel.logs.decode import Line, LineDecoder, clean, decode

PIECES = st.sampled_from(
    [b"a", b"text ", b"\n", b"\r\n", b"\r", b"\t", b"\xff", b"\x00", "ä€🙂".encode(), b"\x1b[31m"]
)
LOGS = st.lists(PIECES, max_size=60).map(b"".join)


@given(LOGS, st.data(), st.integers(0, 1000))
def test_any_chunking_gives_the_same_lines(log: bytes, data: st.DataObject, offset: int) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=8)))
    decoder = LineDecoder(offset)
    lines = []
    for start, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        lines += decoder.feed(log[start:end])
    if decoder.partial:
        lines.append(decoder.partial)
    assert lines == decode(log, offset)


@given(LOGS)
def test_offsets_are_the_beginnings_of_lines(log: bytes) -> None:
    lines = decode(log)
    assert len(lines) == log.count(b"\n") + (not log.endswith(b"\n") and log != b"")
    for line in lines:
        assert line.offset == 0 or log[line.offset - 1 : line.offset] == b"\n"


@given(st.binary(max_size=200).filter(lambda raw: b"\n" not in raw))
def test_clean_text_holds_nothing_that_a_terminal_would_obey(raw: bytes) -> None:
    text = clean(raw)
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in text)
    assert text.splitlines() == ([text] if text else [])


@given(LOGS, st.data())
def test_long_lines_are_cut_alike_whatever_the_chunks(log: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONGEST", 8)
        decoder = LineDecoder()
        lines = decoder.feed(log[:cut]) + decoder.feed(log[cut:])
        lines += [decoder.partial] if decoder.partial else []
        assert lines == decode(log)
    starts = [*(line.offset for line in lines), len(log)]
    assert all(after - before <= 9 for before, after in itertools.pairwise(starts))


def test_a_cut_does_not_part_a_character(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST", 8)
    assert [line.text for line in decode("aaaaaaa€bbb\n".encode())] == ["aaaaaaa", "€bbb"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain", "plain"),
        (b"windows\r", "windows"),
        (b" 10%|#   |\r 20%|##  |\r100%|####|", "100%|####|"),
        (b"\r 10%\r100%\r\x1b[K", "100%"),
        (b"\r\r", ""),
        (b"\x1b[1;36m(Worker pid=1)\x1b[0;0m INFO", "(Worker pid=1) INFO"),
        (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b(Bc", "abc"),
        (b"\x1bP1$r0m\x1b\\after", "after"),
        (b"\x1b]52;c;never ended", "52;c;never ended"),
        (b"a\tb\tc", "a       b       c"),
        (b"bell\x07 null\x00 del\x7f", "bell␇ null␀ del␡"),
        (b"bad \xff\xfe utf", "bad \ufffd\ufffd utf"),
        ("right\u202eleft\u2028".encode(), "right\ufffdleft\ufffd"),
        ("Grüße 🙂".encode(), "Grüße 🙂"),
    ],
)
def test_clean(raw: bytes, text: str) -> None:
    assert clean(raw) == text


def test_partial_shows_the_present_state_of_a_progress_bar() -> None:
    decoder = LineDecoder(100)
    assert decoder.feed(b"one\n 10%") == [Line(100, "one")]
    assert decoder.partial == Line(104, " 10%")
    assert decoder.feed(b"\r 20%") == []
    assert decoder.partial == Line(104, " 20%", (" 10%",))
    assert decoder.feed(b"\n") == [Line(104, " 20%", (" 10%",))]
    assert decoder.partial is None
