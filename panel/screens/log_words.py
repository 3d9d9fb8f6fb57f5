"""What headers say of logs: whose, where, what is sought. Pure."""

from __future__ import annotations

from panel.logs.query import Query
from panel.logs.records import rank_of
from panel.screens.finder import Finder
from panel.widgets.log_model import Picked, Place
from panel.widgets.log_page import LogPage
from panel.widgets.spans import Row, Span, Tone, clip
from panel.widgets.words import size

_LONGEST = 24


def picked_words(picked: Picked) -> str:
    """Return whose logs are shown: `all ranks`, `rank 3`, `ranks 1 3`."""
    if not picked:
        return "all ranks"
    ranks = {rank_of(each) if isinstance(each, str) else each for each in picked}
    numbers = sorted(rank for rank in ranks if rank is not None)
    others = sorted(each for each in picked if isinstance(each, str) and rank_of(each) is None)
    words = [f"rank{'s' * (len(numbers) > 1)} {' '.join(map(str, numbers))}"] if numbers else []
    return " ".join([*words, *others])


def news_words(page: LogPage, behind: int = 0) -> Span:
    """Return whether a page follows, or how much came since it stands still."""
    if page.follows:
        return Span("follow", Tone.GOOD)
    if behind:
        return Span(f"+{size(behind)} new", Tone.WARN)
    return Span(f"+{page.news} new", Tone.WARN if page.news else Tone.DIM)


def search_words(finder: Finder, place: Place | None) -> Row:
    """Return `/text 3/17`."""
    found = finder.hits.number(place) if place else 0
    count = f"{found:,}/{finder.hits.count:,}" if found else f"{finder.hits.count:,} lines"
    return _sought("/", finder, count)


def filter_words(finder: Finder) -> Row:
    """Return `&text 17 lines`, with `!` what does not match."""
    sign = "&!" if finder.query.invert else "&"
    return _sought(sign, finder, f"{finder.hits.count:,} lines")


def _sought(sign: str, finder: Finder, count: str) -> Row:
    searching = " …" if finder.searching else ""
    tone = Tone.DIM if finder.hits.count or finder.searching else Tone.BAD
    pattern = clip(finder.query.pattern, _LONGEST)
    return Span(sign, Tone.KEY), Span(f"{pattern} "), Span(f"{count}{searching}  ", tone)


def typed_query(pattern: str, *, invert: bool = False) -> Query:
    """Return the query of what was typed: case counts where there are capitals. Raises
    `UsageError` for what is no regular expression."""
    query = Query(pattern=pattern, ignore_case=pattern == pattern.lower(), invert=invert)
    query.compile()
    return query
