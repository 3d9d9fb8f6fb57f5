"""Whatever the chunks, the records are the same, and no byte is out of reach."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from panel.logs.decode import LineDecoder, decode
from panel.logs.grammars import Dialect
from panel.logs.merge import Arrivals
from panel.logs.prefix import Grammar
from panel.logs.records import Record, RecordReader
from tests.logs.samples import logs


def chunks(log: bytes, cuts: list[int]) -> Iterator[bytes]:
    return (log[a:b] for a, b in itertools.pairwise([0, *sorted(cuts), len(log)]))


@given(logs(), st.data())
def test_any_chunking_gives_the_same_records(
    made: tuple[Grammar, bytes], data: st.DataObject
) -> None:
    grammar, log = made
    cuts = data.draw(st.lists(st.integers(0, len(log)), max_size=8))
    decoder = LineDecoder()
    reader = RecordReader("engine", Arrivals(), Dialect(grammar))
    records: list[Record] = []
    for chunk in chunks(log, cuts):
        records += reader.read(decoder.feed(chunk))
    if decoder.partial:
        records += reader.read([decoder.partial])
    assert records == RecordReader("engine", Arrivals(), Dialect(grammar)).read(decode(log))


@given(logs())
def test_every_line_is_a_record_with_all_its_text(made: tuple[Grammar, bytes]) -> None:
    grammar, log = made
    lines = decode(log)
    records = RecordReader("engine", Arrivals(), Dialect(grammar)).read(lines)
    assert sorted({record.offset for record in records}) == [line.offset for line in lines]
    for line in lines:
        parts = [record for record in records if record.offset == line.offset]
        assert [record.part for record in parts] == list(range(len(parts)))
        assert "".join(record.line for record in parts).endswith(line.text)
