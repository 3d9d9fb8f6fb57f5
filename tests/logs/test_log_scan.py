"""The search finds what reading every line would find, however it takes its short cuts."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from panel.domain.errors import UsageError
from panel.logs.decode import decode
from panel.logs.grammars import Dialect
from panel.logs.grammars.builtin import BUILTIN
from panel.logs.literals import Required, required
from panel.logs.merge import Arrivals
from panel.logs.oneline import over_lines
from panel.logs.prefix import Grammar
from panel.logs.query import Filter, Query
from panel.logs.records import Level, RecordReader
from panel.logs.scan import Scanner
from panel.logs.severity import suspects
from tests.logs.samples import logs

PATTERNS = st.sampled_from([
    "", "needle", "n.+le", "needle|Decode", "(?i)kelvin k", "(?i:Needle) and", "#running [0-9]",
    "KeyError: \\d", "^\\[2026", "x{20,}$", "two +needles", "File|Trace(back|s)", "(a|)needle",
    "straße", "TP1", "[Nn]eedle", "(?s)needle.", "\\s", "a?b?",
])  # fmt: skip
QUERIES = st.builds(
    Query,
    pattern=PATTERNS,
    ignore_case=st.booleans(),
    invert=st.booleans(),
    level=st.sampled_from(Level),
    ranks=st.sampled_from([(), (1,), (0, 2)]),
).filter(lambda query: bool(query.pattern) or not query.invert)


def matching_lines(log: bytes, query: Query) -> list[int]:
    """By reading everything."""
    search = Filter(query).search
    return [
        line.offset
        for line in decode(log)
        if not query.pattern or any(map(search, (line.text, *line.overwritten))) is not query.invert
    ]


def ranks_known(grammar: Grammar, log: bytes) -> dict[int, int]:
    reader = RecordReader("engine", Arrivals(), Dialect(grammar))
    reader.read(decode(log))
    return dict(reader.ranks)


@given(logs(), QUERIES)
@example((BUILTIN, b"a\n"), Query("(?i)\u212a"))
def test_a_scan_finds_what_reading_finds(made: tuple[Grammar, bytes], query: Query) -> None:
    grammar, log = made
    known = ranks_known(grammar, log)
    found = list(Scanner(query, Dialect(grammar), ranks=known).scan(log, 0))
    if not query.by_record:
        assert found == matching_lines(log, query)
        return
    wants = Filter(query).wants
    reader = RecordReader("engine", Arrivals(), Dialect(grammar), known)
    records = [r for r in reader.read(decode(log)) if wants(r.line, r.level, r.rank)]
    wanted = sorted({record.offset for record in records})
    if query.pattern and not query.invert:
        # Where several records share a line, both the line and the record must match.
        assert found == [at for at in wanted if at in matching_lines(log, query)]
    else:
        assert found == wanted


@given(logs(), QUERIES, st.data())
def test_pieces_find_what_the_whole_finds(
    made: tuple[Grammar, bytes], query: Query, data: st.DataObject
) -> None:
    grammar, log = made
    starts = [line.offset for line in decode(log)]
    cut = data.draw(st.sampled_from(starts or [0]))
    known = ranks_known(grammar, log)
    scanner = Scanner(query, Dialect(grammar), ranks=known)
    whole = list(scanner.scan(log, 0))
    assert list(scanner.scan(log[:cut], 0)) + list(scanner.scan(log, 0, lead=cut)) == whole


@given(logs())
def test_every_severe_record_has_a_suspect(made: tuple[Grammar, bytes]) -> None:
    grammar, log = made
    for line in decode(log):
        (first, *_) = RecordReader("engine", Arrivals(), Dialect(grammar)).read([line])
        for level in (Level.WARNING, Level.ERROR):
            if grammar.loud is None and first.level >= level:
                assert any(word in first.line for word in suspects(level))


@given(
    st.recursive(
        st.sampled_from(["ab", "cde", ".", "\\d", "[xy]", "^", "$", "\\b", "é"]),
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
            inner.map(lambda one: f"(?:{one})?"),
            inner.map(lambda one: f"(?:{one})+"),
            inner.map(lambda one: f"(?i:{one})"),
            inner.map(lambda one: f"(?={one})"),
            inner.map(lambda one: f"(?!{one})"),
        ),
        max_leaves=8,
    ),
    st.text("abcdeéxy1AB", max_size=12),
    st.booleans(),
)
def test_what_matches_has_what_is_required(pattern: str, text: str, ignore_case: bool) -> None:
    flags = re.IGNORECASE if ignore_case else 0
    needs = required(pattern, flags)
    if re.search(pattern, text, flags):
        compared = text.lower() if needs.ignore_case else text
        assert all(any(one in compared for one in group) for group in needs.all_of)


@pytest.mark.parametrize(
    ("pattern", "needs"),
    [
        ("Decode batch.*#running", Required((("Decode batch",), ("#running",)))),
        ("OutOfMemory|NCCL WARN", Required((("OutOfMemory", "NCCL WARN"),))),
        ("(?i)NCCL warn", Required((("nccl warn",),), True)),
        ("(?x) ab  cd # what", Required((("abcd",),))),
        ("x|yy", Required()),
        ("(?:ab)?|cd", Required()),
        ("(ab){2,}c", Required((("ab",),))),
    ],
)
def test_required(pattern: str, needs: Required) -> None:
    assert required(pattern) == needs


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("a(", "missing ), unterminated subpattern at character 2"),
        ("*a", "nothing to repeat at character 1"),
        ("[", "unterminated character set at character 1"),
    ],
)
def test_a_bad_pattern_says_where(pattern: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        Query(pattern).compile()
    Query(pattern, literal=True).compile()


def test_a_query_travels() -> None:
    query = Query("a", ignore_case=True, level=Level.ERROR, ranks=(1, 2))
    assert Query.from_json(query.to_json()) == query


@given(
    st.recursive(
        st.sampled_from(
            ["a", "b", ".", r"\d", "[ab]", "[^a]", r"[^a\n]", "^", "$", r"\b", r"\s", r"\w", r"\B"]
        ),
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
            inner.map(lambda one: f"(?:{one})?"),
            inner.map(lambda one: f"({one})*"),
            inner.map(lambda one: f"(?:{one})+?"),
            inner.map(lambda one: f"(?s:{one})"),
            inner.map(lambda one: f"(?!{one})"),
        ),
        max_leaves=6,
    ),
    st.lists(st.text("ab1 ", max_size=5), max_size=8),
    st.booleans(),
)
@settings(max_examples=300)
def test_many_lines_at_once_or_one_by_one(pattern: str, lines: list[str], ended: bool) -> None:
    data = ("\n".join(lines) + "\n" * ended).encode()
    found = [*Scanner(Query(pattern), Dialect()).scan(data, 0)]
    starts = [0, *(at + 1 for at, byte in enumerate(data) if byte == 10)]
    texts = data.decode().split("\n")
    inside = [(at, text) for at, text in zip(starts, texts, strict=True) if at < len(data)]
    assert found == [at for at, text in inside if re.search(pattern, text)]


@pytest.mark.parametrize(
    ("pattern", "over"),
    [
        ("[A-Z][a-z]+", True), (r"^\d+ .*$", True), ("[^a]b", False), (r"a\s", False),
        ("(?=a)b", False), (r"(a)\1", False), (r"\Aa", False), ("(?s:.)", False), ("a\nb", False),
        ("(?m)^a", False), ("(?:a|b[^\n])+", True), (r"\Ba", False),
    ],
)  # fmt: skip
def test_which_patterns_never_leave_a_line(pattern: str, over: bool) -> None:
    assert (over_lines(pattern) is not None) is over
