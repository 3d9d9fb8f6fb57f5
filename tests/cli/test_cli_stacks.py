"""`moepanel stacks`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from panel.domain.stacks import Frame, ProcessStacks, StackGroup, Stacks, Thread
from tests.cli import samples
from tests.cli.conftest import FakeSupervisor

Command = Callable[..., Result]
LEAF = Frame(name="fire", file="faults.py", line=93)
SIDE = Thread(name="lifeline", frames=(Frame(name="read", file="gang.py", line=7),))


def found(trouble: str = "") -> Stacks:
    threads = () if trouble else (Thread(name="MainThread", frames=(LEAF,), gil=True), SIDE)
    process = ProcessStacks(source="rank-6", pid=9, rank=6, threads=threads, trouble=trouble)
    group = StackGroup(
        sources=("rank-6",), ranks=(6,), frames=() if trouble else (LEAF,), waits="its GPU"
    )
    return Stacks(
        t=12.0, reason="asked", native=False, groups=(group,), processes=(process,),
        file="stacks/000012.000-asked.json",
    )  # fmt: skip


def test_groups(supervisor: FakeSupervisor, moepanel: Command) -> None:
    supervisor.show(samples.snapshot(samples.launch()))
    supervisor.answer("POST /v1/launches/17/stacks", found())
    answer = moepanel("stacks")
    assert answer.exit_code == 0
    assert "rank 6 (waits for its GPU)" in answer.stdout
    assert "  fire (faults.py:93)" in answer.stdout
    assert "lifeline" not in answer.stdout
    assert "stacks/000012.000-asked.json" in answer.stderr
    assert supervisor.requests[-1] == ("POST /v1/launches/17/stacks", {"native": False})


def test_threads_native_and_a_copy(
    supervisor: FakeSupervisor, moepanel: Command, tmp_path: Path
) -> None:
    supervisor.show(samples.snapshot(samples.launch()))
    supervisor.answer("POST /v1/launches/17/stacks", found())
    copy = tmp_path / "stacks.json"
    answer = moepanel("stacks", "--native", "--threads", "--save", str(copy))
    assert "rank-6, lifeline" in answer.stdout
    assert "rank-6, MainThread: GIL" in answer.stdout
    assert supervisor.requests[-1][1] == {"native": True}
    assert json.loads(copy.read_text())["groups"][0]["ranks"] == [6]


def test_json(supervisor: FakeSupervisor, moepanel: Command) -> None:
    supervisor.show(samples.snapshot(samples.launch()))
    supervisor.answer("POST /v1/launches/17/stacks", found())
    assert json.loads(moepanel("stacks", "--json").stdout)["t"] == 12.0


def test_nothing_that_could_be_taken(supervisor: FakeSupervisor, moepanel: Command) -> None:
    supervisor.show(samples.snapshot(samples.launch()))
    supervisor.answer("POST /v1/launches/17/stacks", found("no right to trace process 9"))
    answer = moepanel("stacks")
    assert answer.exit_code == 1
    assert "no right to trace process 9" in answer.stderr


def test_no_launch(supervisor: FakeSupervisor, moepanel: Command) -> None:
    supervisor.show(samples.snapshot())
    assert moepanel("stacks").exit_code == 3


def test_a_copy_that_cannot_be_written(
    supervisor: FakeSupervisor, moepanel: Command, tmp_path: Path
) -> None:
    supervisor.show(samples.snapshot(samples.launch()))
    supervisor.answer("POST /v1/launches/17/stacks", found())
    answer = moepanel("stacks", "--save", str(tmp_path / "missing" / "file"))
    assert answer.exit_code == 1
    assert "No such file" in answer.stderr
