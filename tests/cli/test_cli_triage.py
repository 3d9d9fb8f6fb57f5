"""`moepanel triage`: texts, JSON and exit codes."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from panel.cli import main
from panel.commands._hanging import suspected
from panel.domain.hang import HangView, Rung, Suspicion
from panel.domain.verdict import Verdict

CRASH = (
    '{"t": 1, "kind": "spawn", "source": "rank-3", "pid": 5, "rank": 3}\n'
    '{"t": 2.5, "kind": "exit", "pid": 5, "code": -11}\n'
)
TRACE = """Traceback (most recent call last):
  File "/srv/run.py", line 2, in step
    step()
ZeroDivisionError: division by zero
"""


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
    (folder / "engine.log").write_text("[2026-01-31 12:00:00.123 TP0 serving] INFO fine\n")
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


def test_a_folder_of_this_node_is_known_as_its_launch(
    crashed: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor has noted what the kernel said: nothing is missing where it said nothing."""
    monkeypatch.setattr("panel.triage.folder.read_kernel_log", lambda: "")
    own = home / "launches" / "000007"
    own.parent.mkdir(parents=True)
    crashed.rename(own)
    assert "kernel log" not in moepanel(own).stdout
    assert moepanel(own).stdout == moepanel("--launch", "7").stdout
    copy = home / "elsewhere"
    own.rename(copy)
    assert "kernel log" in moepanel(copy).stdout


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


def test_gzip_is_read_and_a_binary_refused(crashed: Path, tmp_path: Path) -> None:
    packed = tmp_path / "engine.log.gz"
    packed.write_bytes(gzip.compress((crashed / "rank-3.log").read_bytes() + TRACE.encode()))
    assert "ZeroDivisionError" in moepanel(packed).stdout
    done = moepanel(sys.executable)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "is a binary file, not a log" in done.stderr


@pytest.mark.parametrize("text", ["", "# Notes\n\nrank 3 went down; NVRM: Xid is bad\n", "\n\n"])
def test_what_no_engine_wrote_gets_no_verdict(tmp_path: Path, text: str) -> None:
    (tmp_path / "notes.log").write_text(text)
    for path in (tmp_path, tmp_path / "notes.log"):
        done = moepanel(path)
        assert (done.exit_code, done.stdout) == (3, "")
        assert f"no engine log in this: {path}" in done.stderr


def test_a_binary_beside_a_log_is_said(crashed: Path) -> None:
    (crashed / "rank-4.log").write_bytes(bytes(range(256)) * 16)
    done = moepanel(crashed)
    assert done.stdout.startswith("rank 3 failed first")
    assert "rank-4.log is a binary file" in done.stdout


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


def test_advice_for_our_own_launch_is_a_command(home: Path, crashed: Path) -> None:
    launch = {"engine": "builtin", "argv": ["--fault", "rank=3,phase=serving,kind=sigsegv"]}
    (crashed / "launch.json").write_text(json.dumps(launch))
    assert "(--unset fault)" in moepanel(crashed).stdout
    crashed.rename(home.joinpath("launches").mkdir(parents=True) or home / "launches/000004")
    assert "(moepanel relaunch --unset fault)" in moepanel().stdout


@pytest.mark.parametrize(("trouble", "told"), [("", False), ("not permitted", True)])
def test_a_kernel_log_that_can_be_read_is_known(
    home: Path, crashed: Path, monkeypatch: pytest.MonkeyPatch, trouble: str, told: bool
) -> None:
    monkeypatch.setattr("panel.triage.folder.read_kernel_log", lambda: trouble)
    crashed.rename(home.joinpath("launches").mkdir(parents=True) or home / "launches/000004")
    assert ("not known: kernel log" in moepanel().stdout) is told


def test_suspicion_of_a_supervisor_is_a_hang() -> None:
    well = Verdict(status="running", headline="nothing has failed")
    rungs = (
        Rung(step="look", number=0, title="", cost="", done=True, result="rank 2 never came"),
        Rung(step="ras", number=1, title="", cost="", refused="no GPU"),
    )
    assert suspected(well, HangView(launch=1, suspicion=None, rungs=rungs)) == well
    why = Suspicion(since=4.0, ranks=(2,), text="rank 2 without a beat for 11 s")
    found = suspected(well, HangView(launch=1, suspicion=why, rungs=rungs))
    assert (found.status, found.t_first) == ("hung", 4.0)
    assert found.headline == "it may hang: rank 2 without a beat for 11 s"
    assert [line.text for line in found.evidence] == ["rank 2 never came"]
