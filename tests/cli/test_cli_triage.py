"""`moepanel triage`: texts, JSON and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from panel.cli import main

CRASH = (
    '{"t": 1, "kind": "spawn", "source": "rank-3", "pid": 5, "rank": 3}\n'
    '{"t": 2.5, "kind": "exit", "pid": 5, "code": -11}\n'
)


def moepanel(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["triage", *map(str, words)])


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    folder = tmp_path / "crashed"
    folder.mkdir()
    (folder / "events.jsonl").write_text(CRASH)
    (folder / "rank-3.log").write_text("[2026-01-31 12:00:00.123 TP3 capture] INFO batch size 8\n")
    return folder


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    folder = tmp_path / "healthy"
    folder.mkdir()
    (folder / "engine.log").write_text("fine\n")
    return folder


def test_text_says_who_why_where_and_what_to_do(crashed: Path) -> None:
    done = moepanel(crashed)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "rank 3 failed first: killed by SIGSEGV in capture"
    assert "sigsegv (cuda-runtime)" in lines[1]
    assert any(line.startswith("cause: ") for line in lines)
    assert any("rank-3:1: " in line and "batch size 8" in line for line in lines)
    assert any(line.startswith("not known: kernel log") for line in lines)


def test_check_fails_for_what_failed_only(crashed: Path, healthy: Path) -> None:
    assert moepanel(crashed, "--check").exit_code == 1
    assert moepanel(healthy, "--check").exit_code == 0


def test_one_verdict_is_an_object_and_several_are_an_array(crashed: Path, healthy: Path) -> None:
    one = json.loads(moepanel(crashed, "--json").stdout)
    assert (one["status"], one["root_ranks"]) == ("crashed", [3])
    both = json.loads(moepanel(crashed, healthy, "--json").stdout)
    assert [each["status"] for each in both] == ["crashed", "running"]
    text = moepanel(healthy, crashed).stdout.splitlines()
    assert str(healthy) in text
    assert str(crashed) in text


def test_raw_files_are_sources_of_one_launch(crashed: Path, healthy: Path) -> None:
    done = moepanel(crashed / "rank-3.log", healthy / "engine.log", "--json")
    assert json.loads(done.stdout)["status"] == "running"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("nowhere.log",), 3, "does not exist"),
        (("3",), 3, "moepanel triage --launch 3"),
        (("--launch", "7"), 3, "no launch"),
        ((), 3, "no launch yet"),
    ],
)
def test_what_is_not_there(home: Path, words: tuple[str, ...], code: int, told: str) -> None:
    done = moepanel(*words)
    assert done.exit_code == code
    assert told in done.stderr


def test_paths_that_do_not_go_together(crashed: Path) -> None:
    assert moepanel(crashed, crashed / "rank-3.log").exit_code == 2
    assert moepanel(crashed, "--launch", "1").exit_code == 2


def test_last_launch_without_a_supervisor(home: Path, crashed: Path) -> None:
    crashed.rename(home.joinpath("launches").mkdir(parents=True) or home / "launches/000004")
    assert moepanel("--json").exit_code == 0
    assert "rank 3 failed first" in moepanel("--launch", "4").stdout
