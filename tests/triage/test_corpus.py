"""The corpus and, where they are present, the captures of real engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from panel.triage.signature import load
from tests.triage.build import build, cases
from tests.triage.score import main, score

CORPUS = Path(__file__).parent / "corpus"
CAPTURES = Path(__file__).parents[3] / "shared/reallogs"
NAMES = ("status", "root", "kind", "advice", "allowed")
FACTS = 81
UNKNOWABLE = {10, 19, 31, 36, 55, 72, 76, 78}
"""Numbers that the catalogue does not have."""


def test_corpus_is_judged_right_at_every_moment() -> None:
    results = score(CORPUS, prefixes=True)
    wrong = [each for each in results if not all(getattr(each, name) for name in NAMES)]
    assert not wrong
    assert len(results) > 200


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="no captures of real engines beside the checkout")
def test_real_captures_are_judged_right_at_every_moment() -> None:
    results = score(CAPTURES, prefixes=True)
    assert not [each for each in results if not all(getattr(each, name) for name in NAMES)]
    assert results


def test_every_kind_has_a_case() -> None:
    expected = {
        kind
        for case in cases(CORPUS)
        for name in ("expect", "expect_bare")
        for kind in case.get(name, {}).get("kinds", ())
    }
    known = {rule.signature.kind for rule in load().rules}
    # Noise that is never a verdict's kind, and what means that nothing failed.
    silent = {"harmless", "wrapper", "xid_app", "shm_broadcast_wait", "slow_not_hung"}
    assert known - silent <= expected


def test_every_entry_of_the_catalogue_has_a_signature() -> None:
    told = {int(fact[1:]) for rule in load().rules for fact in rule.signature.facts}
    assert told == set(range(1, FACTS + 1)) - UNKNOWABLE


def test_every_case_is_built_in_two_variations_or_says_why_not() -> None:
    for case in cases(CORPUS):
        assert len(case.get("without", ())) <= 2, case["name"]


def test_without_arrival_times_little_is_lost(tmp_path: Path) -> None:
    build(CORPUS, tmp_path)
    for path in tmp_path.glob("*/*.times"):
        path.unlink()
    results = score(tmp_path)
    for name in NAMES:
        assert sum(getattr(each, name) for each in results) > 0.99 * len(results), name


def test_score_fails_below_the_minimum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (CORPUS / "healthy.toml").read_text().replace('"stopped"', '"crashed"')
    (tmp_path / "wrong.toml").write_text(text)
    monkeypatch.setattr("sys.argv", ["score.py", str(tmp_path), "--min", "0.97"])
    assert main() == 1
    assert "wrong status" in capsys.readouterr().out


def test_score_of_nothing_is_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["score.py", str(tmp_path)])
    assert main() == 2
    assert "no case" in capsys.readouterr().err
