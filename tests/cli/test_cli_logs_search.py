"""`moepanel logs` as a tool for searching: folded, around, by time, in single files, in a pipe."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from panel.config.home import find_home
from panel.domain.events import Gang
from panel.supervisor.evidence import Folder, append_event

Run = Callable[..., Result]


def line(rank: int, text: str) -> str:
    return f"[2026-01-31 12:00:00.123 TP{rank} capture] {text}\n"


@pytest.fixture
def evidence(home: Path) -> Folder:
    """Three ranks that say the same, but rank 2, which then fails."""
    found = find_home()
    found.prepare()
    folder = Folder(found.launch(1))
    folder.path.mkdir(parents=True)
    for rank in range(3):
        said = [
            (1.0, line(rank, "INFO begin")),
            (2.0, line(rank, f"INFO memory {16 if rank == 2 else 21}.5 GB left")),
            (3.0, line(rank, "ERROR KeyError: 7" if rank == 2 else "INFO bucket done")),
            (4.0, line(rank, "INFO end")),
        ]
        log, times = "", ""
        for t, text in said:
            times += json.dumps({"t": t, "offset": len(log)}) + "\n"
            log += text
        folder.log(f"rank-{rank}").write_text(log)
        folder.times(f"rank-{rank}").write_text(times)
    append_event(folder, Gang(t=3.0, state="failing"))
    return folder


def texts(done: Result) -> list[str]:
    assert done.exit_code == 0, done.stderr
    return [shown.partition("capture] ")[2] for shown in done.stdout.splitlines()]


def test_fold_shows_who_differs(evidence: Folder, moepanel: Run) -> None:
    done = moepanel("logs", "--fold")
    assert [" ".join(shown.split()) for shown in done.stdout.splitlines()] == [
        "1.000 ×3 [012] begin",
        "2.000 ×3 [012] !2 memory # GB left",
        "3.000 ×2 [01·] bucket done",
        "3.000 ×1 [··2] !2 KeyError: 7",
        "4.000 ×3 [012] end",
    ]


def test_fold_json(evidence: Folder, moepanel: Run) -> None:
    rows = [json.loads(row) for row in moepanel("logs", "--fold", "--json").stdout.splitlines()]
    assert rows[2] == {
        "t": 3.0, "ranks": [0, 1], "missing": [2], "odd": [], "level": "info",
        "phase": "capture", "text": "bucket done",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--grep", "keyerror", "-i"), ["ERROR KeyError: 7"]),
        (("--grep", "keyerror"), []),
        (("--level", "error", "-C", "1"), ["INFO memory 16.5 GB left", "ERROR KeyError: 7",
                                           "INFO end"]),
        (("--since", "crash", "--until", "3.5", "--rank", "2"), ["ERROR KeyError: 7"]),
        (("--until", "crash-1.5"), ["INFO begin"] * 3),
        (("--since", "4"), ["INFO end"] * 3),
        (("--since", "9"), []),
        (("--grep", "INFO", "--invert", "--since", "2"), ["ERROR KeyError: 7"]),
    ],
)  # fmt: skip
def test_filters(evidence: Folder, moepanel: Run, words: tuple[str, ...], found: list[str]) -> None:
    assert texts(moepanel("logs", *words)) == found


def test_neighbours_have_a_dash(evidence: Folder, moepanel: Run) -> None:
    shown = moepanel("logs", "--grep", "KeyError", "-C", "1").stdout.splitlines()
    assert [text[:3] for text in shown] == ["2 -", "2 |", "2 -"]


def test_packed_evidence(evidence: Folder, moepanel: Run) -> None:
    plain = evidence.log("rank-2")
    plain.with_suffix(".log.gz").write_bytes(gzip.compress(plain.read_bytes()))
    before = moepanel("logs").stdout, moepanel("logs", "--grep", "GB").stdout
    plain.unlink()
    assert (moepanel("logs").stdout, moepanel("logs", "--grep", "GB").stdout) == before


def test_a_log_of_another_machine(tmp_path: Path, moepanel: Run) -> None:
    log = tmp_path / "engine.txt"
    log.write_text(
        "(Worker pid=7) INFO 11-30 11:50:00 [a.py:1] early\n"
        "(Worker_TP1 pid=7) INFO 11-30 11:50:01 [a.py:1] rank 1 in world size 2 is assigned as\n"
        "(Worker_TP0 pid=6) ERROR 11-30 11:50:02 [a.py:1] token=sesame-open-now\n"
    )
    shown = moepanel("logs", str(log), "--rank", "1").stdout.splitlines()
    assert [text.split("] ")[1][:6] for text in shown] == ["early", "rank 1"]
    assert "sesame" not in moepanel("logs", str(log), "--level", "error").stdout


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("plain.log", "--grep", "a("), 2, "missing ), unterminated subpattern at character 2"),
        (("plain.log", "--since", "soon"), 2, "neither seconds"),
        (("--grep", "x", "nowhere.log"), 3, "there is no nowhere.log"),
        ((".",), 2, "is a folder"),
        (("pipe",), 2, "is a pipe or device"),
        (("noise.bin",), 2, "is a binary file"),
        (("plain.log", "--since", "3"), 2, "does not say when its lines arrived"),
    ],
)
def test_what_is_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moepanel: Run,
    words: tuple[str, ...], code: int, says: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("noise.bin").write_bytes(bytes(range(256)) * 20)
    Path("plain.log").write_text("text\n")
    done = moepanel("logs", *words)
    assert done.exit_code == code
    assert says in done.stderr
    assert done.stdout == ""


def test_a_launch_that_did_not_crash(evidence: Folder, moepanel: Run) -> None:
    evidence.events.unlink()
    done = moepanel("logs", "--since", "crash-5")
    assert (done.exit_code, "did not crash" in done.stderr) == (2, True)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["replaced", "shrunk"])
def test_a_file_that_becomes_another_while_followed(tmp_path: Path, how: str) -> None:
    log = tmp_path / "engine.log"
    log.write_text("first\nsecond\n")
    with subprocess.Popen(
        [sys.executable, "-m", "panel.cli", "logs", "--follow", str(log)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert [process.stdout.readline() for _ in range(2)] == ["first\n", "second\n"]
        if how == "replaced":
            (tmp_path / "new").write_text("third\n")
            (tmp_path / "new").replace(log)
        else:
            log.write_text("third\n")
        assert process.stdout.readline() == "third\n"
        said = process.stderr.readline()
        process.terminate()
    assert "engine.log was replaced" in said or "engine.log shrank" in said
