"""`moepanel logs` on an evidence folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from panel.commands._launches import pick
from panel.config.home import find_home
from panel.domain.errors import NotFoundError
from panel.domain.events import Gang
from panel.supervisor.evidence import Folder, append_event

Run = Callable[..., Result]

HEAD = "[2026-01-31 12:00:00.123 TP{} capture] "


def write(folder: Folder, source: str, *lines: tuple[float, str]) -> None:
    folder.path.mkdir(parents=True, exist_ok=True)
    with folder.log(source).open("a") as log, folder.times(source).open("a") as times:
        for t, line in lines:
            times.write(json.dumps({"t": t, "offset": log.tell()}) + "\n")
            log.write(line)


@pytest.fixture
def evidence(home: Path) -> Folder:
    """The folder of launch 2, with two ranks."""
    found = find_home()
    found.prepare()
    write(Folder(found.launch(1)), "rank-0", (1.0, HEAD.format(0) + "INFO the launch before\n"))
    folder = Folder(found.launch(2))
    write(
        folder,
        "rank-0",
        (1.0, HEAD.format(0) + "INFO one\n"),
        (3.0, HEAD.format(0) + "ERROR three api_key=sesame-open\n"),
    )
    write(folder, "rank-1", (2.0, HEAD.format(1) + "WARNING two\n"), (4.0, "four without end"))
    return folder


def shown(done: Result) -> list[str]:
    """The label and the end of each line shown."""
    assert done.exit_code == 0, done.stderr
    return [f"{line[0]} {line.split()[-1]}" for line in done.stdout.splitlines()]


def test_logs_are_merged_by_arrival(evidence: Folder, moepanel: Run) -> None:
    done = moepanel("logs")
    assert shown(done) == ["0 one", "1 two", "0 api_key=***********", "1 end"]
    assert done.stdout.startswith("0 | [2026-01-31 12:00:00.123 TP0 capture] INFO one\n")


@pytest.mark.parametrize(
    ("words", "ends"),
    [
        (("--rank", "1"), ["[ two", "f end"]),
        (("--source", "rank-1"), ["[ two", "f end"]),
        (("--rank", "0", "--source", "rank-1", "--grep", "t[wh]"), [
            "1 two", "0 api_key=***********", "1 end",
        ]),
        (("--grep", "INFO|WARN", "--invert"), ["0 api_key=***********", "1 end"]),
        (("--level", "error"), ["0 api_key=***********"]),
        (("--launch", "1"), ["[ before"]),
        (("--launch", "-2"), ["[ before"]),
    ],
)  # fmt: skip
def test_logs_filters(
    evidence: Folder, moepanel: Run, words: tuple[str, ...], ends: list[str]
) -> None:
    assert shown(moepanel("logs", *words)) == ends


def test_logs_json(evidence: Folder, moepanel: Run) -> None:
    lines = [json.loads(line) for line in moepanel("logs", "--json").stdout.splitlines()]
    assert lines[1] == {
        "t": 2.0, "source": "rank-1", "rank": 1, "level": "warning", "phase": "capture",
        "offset": 0, "text": "two",
    }  # fmt: skip
    assert lines[3]["level"] == "warning"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--launch", "9"), 3),
        (("--rank", "7"), 3),
        (("--grep", "("), 2),
        (("--level", "loud"), 2),
    ],
)
def test_logs_wrong_questions(
    evidence: Folder, moepanel: Run, words: tuple[str, ...], code: int
) -> None:
    done = moepanel("logs", *words)
    assert done.exit_code == code
    assert done.stdout == ""


def test_logs_of_a_fresh_home(moepanel: Run) -> None:
    assert moepanel("logs").exit_code == 3


@pytest.mark.timeout(30)
def test_logs_follow_until_the_gang_is_down(evidence: Folder, moepanel: Run) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "panel.cli", "logs", "--follow"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first = [process.stdout.readline() for _ in range(3)]
        write(evidence, "rank-1", (5.0, " yet\n"))
        held = process.stdout.readline()
        write(evidence, "rank-2", (6.0, HEAD.format(2) + "INFO new source\n"))
        append_event(evidence, Gang(t=7.0, state="down"))
        rest = process.stdout.read()
    assert first[0].endswith("one\n")
    assert held == "1 | four without end yet\n"
    assert rest.endswith("new source\n")
    assert process.returncode == 0


@pytest.mark.timeout(30)
def test_logs_into_a_closed_pipe(evidence: Folder) -> None:
    write(evidence, "rank-3", *((9.0, "x" * 1000 + "\n") for _ in range(1000)))
    with subprocess.Popen(
        [sys.executable, "-m", "panel.cli", "logs"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_locale_of_another_encoding(evidence: Folder, encoding: str) -> None:
    write(evidence, "rank-0", (9.0, HEAD.format(0) + "INFO 10 €\n"))
    done = subprocess.run(
        [sys.executable, "-m", "panel.cli", "logs", "--rank", "0"],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": encoding},
        check=True,
        timeout=30,
    )
    assert b"INFO 10 " in done.stdout
    assert done.stderr == b""


def test_pick() -> None:
    assert [pick(number, [3, 5, 9]) for number in (3, 9, -1, -3)] == [3, 9, 9, 3]
    for number in (4, 0, -4):
        with pytest.raises(NotFoundError):
            pick(number, [3, 5, 9])
    with pytest.raises(NotFoundError):
        pick(-1, [])
