"""Hits: whatever the order in which pieces come, they are walked in the order of the log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from panel.domain.wire import Found
from panel.widgets.log_hits import Hits
from panel.widgets.log_model import Place

PIECE = 100


@st.composite
def searched(draw: st.DrawFn) -> tuple[Hits, list[Place]]:
    """Hits of two sources as a search gives them: the newest first, then what grew."""
    hits, places = Hits(), []
    pieces = []
    for source in ("rank-0", "rank-1"):
        offsets = sorted(draw(st.sets(st.integers(0, 599), max_size=30)))
        times = [float(offset // draw(st.sampled_from([30, 50]))) for offset in offsets]
        times = [max(times[: n + 1]) for n in range(len(times))]
        places += [(t, source, offset) for t, offset in zip(times, offsets, strict=True)]
        grown = draw(st.integers(0, 6))
        order = [*reversed(range(grown)), *range(grown, 6)]
        for piece in order:
            inside = [n for n, offset in enumerate(offsets) if offset // PIECE == piece]
            pieces.append(
                Found(source=source, start=piece * PIECE, end=(piece + 1) * PIECE,
                      count=len(inside), offsets=tuple(offsets[n] for n in inside),
                      times=tuple((times[n], 1) for n in inside), left=1)
            )  # fmt: skip
    for piece in pieces:
        hits.take(piece)
    hits.take(Found())
    return hits, sorted(places)


@given(searched(), st.integers(0, 20), st.sampled_from(["", "rank-0", "rank-1", "z"]))
def test_neighbours_of_any_place(made: tuple[Hits, list[Place]], t: int, source: str) -> None:
    hits, places = made
    for offset in (0, 250, 599):
        here = (float(t), source, offset)
        # In one moment a source's offsets decide, whatever they are of the others.
        assert hits.after(here, 3) == [place for place in places if place > here][:3]
        assert hits.before(here, 3) == [place for place in places if place < here][-3:]


@given(searched())
def test_all_are_numbered_in_order(made: tuple[Hits, list[Place]]) -> None:
    hits, places = made
    assert (hits.count, hits.listed, hits.left) == (len(places), len(places), 0)
    assert [hits.number(place) for place in places] == list(range(1, len(places) + 1))
    assert hits.number((3.0, "rank-9", 1)) == 0
    assert hits.after(None, 1000) == hits.before(None, 1000) == places
    hits.clear()
    assert (hits.count, hits.after(None)) == (0, [])


@given(searched(), st.integers(1, 9))
def test_the_histogram_counts_all(made: tuple[Hits, list[Place]], cells: int) -> None:
    hits, places = made
    counts = hits.histogram(20.0, cells)
    width = 20.0 / cells
    assert sum(counts) == len(places)
    first = sum(t < width for t, *_ in places) if cells > 1 else len(places)
    assert counts[0] == first
