"""Figures over time."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from panel.domain.series import Series
from panel.probes.series import History, read

FIGURES = st.dictionaries(
    st.sampled_from(["engine.tok_s", "gpu0.util", "gpu1.util"]),
    st.none() | st.integers(0, 100).map(float),
)


def test_memory_forgets_what_the_file_keeps(tmp_path: Path) -> None:
    path = tmp_path / "series.jsonl"
    history = History(path, kept=2)
    for second in range(4):
        history.add(float(second), {"engine.tok_s": 10.0 * second, "gpu0.util": None})
    assert history.series().times == (2.0, 3.0)
    assert history.series(("engine.",)).values == {"engine.tok_s": (20.0, 30.0)}
    whole = read(path)
    assert whole.times == (0.0, 1.0, 2.0, 3.0)
    assert whole.values["engine.tok_s"] == (0.0, 10.0, 20.0, 30.0)
    assert whole.last(1) == Series(
        times=(3.0,), values={"engine.tok_s": (30.0,), "gpu0.util": (None,)}
    )
    assert path.stat().st_mode & 0o777 == 0o600


@given(moments=st.lists(FIGURES, max_size=20))
def test_the_file_says_what_memory_says(
    moments: list[dict[str, float | None]], tmp_path_factory: object
) -> None:
    path = tmp_path_factory.mktemp("series") / "series.jsonl"  # type: ignore[attr-defined]
    history = History(path)
    for second, figures in enumerate(moments):
        history.add(float(second), figures)
    if moments:
        assert read(path) == history.series()


def test_a_torn_line_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "series.jsonl"
    path.write_bytes(b'{"names":["a"]}\n[1.0,2]\n[2.0,')
    assert read(path) == Series(times=(1.0,), values={"a": (2,)})


def test_a_second_supervisor_goes_on_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "series.jsonl"
    History(path).add(1.0, {"a": 1.0})
    History(path).add(2.0, {"a": 2.0, "b": 3.0})
    assert read(path).values == {"a": (1.0, 2.0), "b": (None, 3.0)}


def test_a_full_disk_leaves_memory(tmp_path: Path) -> None:
    history = History(tmp_path / "missing" / "series.jsonl")
    history.add(1.0, {"a": 1.0})
    assert history.series().values == {"a": (1.0,)}
