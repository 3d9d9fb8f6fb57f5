"""What a verdict must stand: evidence in other pieces, lost lines, words of other engines."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panel.domain.verdict import Verdict
from panel.logs.merge import parse_times
from panel.triage.facts import Facts
from panel.triage.folder import read_events, read_facts, triage_folder
from panel.triage.triage import Triage
from tests.triage.boot import NOISE
from tests.triage.build import Builder, cases
from tests.triage.score import allowed_roots, roots_of

CORPUS = Path(__file__).parent / "corpus"
CASES = list(cases(CORPUS))


class Lossy(Builder):
    """Some lines never reached the disk."""

    def _put(self, source: str, text: str) -> None:
        kept = [line for line in text.split("\n") if self.random.random() > 0.1]
        if kept:
            super()._put(source, "\n".join(kept))


class Noisy(Builder):
    """Others write to the same log."""

    def _put(self, source: str, text: str) -> None:
        super()._put(source, text)
        if self.random.random() < 0.5:
            super()._put(source, self.random.choice(NOISE))


def built(kind: type[Builder], case: dict[str, Any], folder: Path) -> Verdict:
    kind(case, "whole").build(folder)
    return triage_folder(folder)


def innocents(verdict: Verdict, case: dict[str, Any]) -> set[int]:
    """Return ranks that are named for certain and may not be."""
    roots, allowed = roots_of(verdict), allowed_roots(case["expect"])
    if verdict.confidence == "low" or roots == "all" or "all" in allowed:
        return set()
    return set(roots) - {rank for each in allowed for rank in each}


@pytest.mark.parametrize("seed", range(3))
def test_lost_lines_never_accuse_an_innocent(tmp_path: Path, seed: int) -> None:
    for case in CASES:
        lossy = case | {"name": f"{case['name']}/{seed}"}
        verdict = built(Lossy, lossy, tmp_path / case["name"])
        # Without the odd count nothing tells that the faults of others have one cause.
        if case["name"] != "custom_ar_count":
            assert not innocents(verdict, case), (case["name"], verdict.headline)


def test_noise_of_others_changes_nothing(tmp_path: Path) -> None:
    for case in CASES:
        clean = built(Builder, case, tmp_path / f"{case['name']}.clean")
        noisy = built(Noisy, case, tmp_path / f"{case['name']}.noisy")
        assert (noisy.status, noisy.kind, noisy.root_ranks) == (
            clean.status,
            clean.kind,
            clean.root_ranks,
        ), case["name"]


def chunks(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    """Cut data at places given in thousandths of its length."""
    places = sorted({cut * len(data) // 1000 for cut in cuts})
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        yield data[start:end]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, len(CASES) - 1), st.lists(st.integers(1, 999), max_size=20))
def test_any_chunking_gives_the_same_verdict(
    tmp_path_factory: pytest.TempPathFactory, number: int, cuts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("case") / "folder"
    Builder(CASES[number], "whole").build(folder)
    triage = Triage(read_facts(folder / "launch.json") or Facts())
    for event in read_events(folder / "events.jsonl"):
        triage.see(event)
    for log in folder.glob("*.log"):
        triage.read(log.stem, b"", parse_times(log.with_suffix(".times").read_bytes()))
        for chunk in chunks(log.read_bytes(), cuts):
            triage.read(log.stem, chunk)
    triage.end()
    whole = triage_folder(folder)
    assert triage.verdict(missing=whole.missing) == whole


def hangs_on_numbers(case: dict[str, Any]) -> bool:
    """Return whether a script writes ranks out, so that they cannot be turned."""
    words = ("rank", "scheduler_", "Vllm", "gpu")
    return any(word in step for step in case["script"] for word in words)


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in CASES
        if case["expect"]["root_ranks"] not in ("all", [])
        and "whole" not in case.get("without", ())
        and not hangs_on_numbers(case)
    ],
    ids=lambda case: str(case["name"]),
)
def test_nothing_hangs_on_which_rank_it_is(tmp_path: Path, case: dict[str, Any]) -> None:
    world = case.get("world", 4)

    class Turned(Builder):
        def targets(self, who: str) -> list[str]:
            found = super().targets(who)
            if who != "all" and not (who[0] == "r" and who[1:2].isdigit()):
                return found
            return [f"r{(int(each[1:]) + 1) % world}" for each in found]

    Turned(case, "whole").build(tmp_path / "folder")
    turned = tuple(sorted((rank + 1) % world for rank in case["expect"]["root_ranks"]))
    assert triage_folder(tmp_path / "folder").root_ranks == turned


def test_a_seed_makes_the_same_case(tmp_path: Path) -> None:
    case = random.Random(1).choice(CASES)
    for name in ("a", "b"):
        Builder(case, "mixed").build(tmp_path / name)
    first, second = ((tmp_path / name / "events.jsonl").read_bytes() for name in ("a", "b"))
    assert first == second
