"""Commands that show: `status`, `history`, `diff`, `plan`, `doctor`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import Result

from panel.commands._screen import screen
from panel.commands._words import fit
from panel.commands.diff import Difference
from panel.config.home import find_home
from panel.domain.flags import Request
from panel.domain.plan import Change, Memory, Plan, Problem, Resolved
from panel.domain.snapshot import KeptWeights, Metrics, Snapshot, Speculation
from panel.domain.states import LaunchState
from panel.domain.wire import LaunchRecord
from panel.probes.check import Check
from panel.supervisor.ledger import Ledger
from tests.cli.conftest import FakeSupervisor
from tests.cli.samples import REQUEST, crashed, launch, rank, snapshot

Run = Callable[..., Result]


def test_status_json_is_the_snapshot(supervisor: FakeSupervisor, moepanel: Run) -> None:
    supervisor.show(snapshot(launch()))
    done = moepanel("status", "--json")
    assert done.exit_code == 0
    assert msgspec.json.decode(done.stdout, type=Snapshot) == snapshot(launch())


@pytest.mark.parametrize(("known", "told"), [(1.7, "1.7"), (None, "?")])
def test_status_says_when_drafts_pay(
    supervisor: FakeSupervisor, moepanel: Run, known: float | None, told: str
) -> None:
    metrics = Metrics(acceptance=2.6, speculation=Speculation(drafts=4, break_even=known))
    supervisor.show(snapshot(msgspec.structs.replace(launch(), metrics=metrics)))
    assert f"accept 2.6 (pays >{told})" in moepanel("status").stdout


def test_status_in_words(supervisor: FakeSupervisor, moepanel: Run) -> None:
    supervisor.show(snapshot(launch()))
    lines = moepanel("status").stdout.splitlines()
    assert lines[0] == "gpu-a  #17 tiny/builtin  ● serving 00:12:31  tp8 ep8"
    assert lines[1] == "412 tok/s  run 4 wait 0  kv 31%  accept 2.6"
    assert lines[2] == "http://127.0.0.1:30000  ready after 4.1s"
    assert lines[4].split() == [
        "●", "0", "serving", "4000", "98%", "312M", "0.1s", "Decode", "batch,", "4", "running",
    ]  # fmt: skip
    assert [line.split()[1] for line in lines[4:]] == [*map(str, range(8)), "frontend"]


def test_status_tells_where_a_start_went() -> None:
    start = {"processes": 0.5, "args": 0.01, "weights": 2.7, "capture": 0.81}
    assert "start   processes 0.5s  weights 2.7s  capture 0.8s" in list(
        screen(snapshot(launch(start=start)))
    )
    narrow = list(screen(snapshot(launch(start=start)), 40))
    at = narrow.index("start   processes 0.5s  weights 2.7s")
    assert narrow[at + 1] == "        capture 0.8s"


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (KeptWeights(pid=4711), "weights will be kept by pid 4711, none yet"),
        (
            KeptWeights(pid=4711, bytes=33 << 30, ranks=8, whole=8, users=8),
            "weights kept: 33.0G by pid 4711, used by 8 ranks",
        ),
        (
            KeptWeights(pid=4711, bytes=33 << 30, ranks=1, whole=1, users=1, leaving=True),
            "weights kept: 33.0G by pid 4711, used by 1 rank; freed when it stops",
        ),
        (
            KeptWeights(pid=4711, bytes=33 << 30, ranks=8, whole=8),
            "weights kept: 33.0G by pid 4711, for the next launch",
        ),
        (
            KeptWeights(pid=4711, bytes=33 << 30, ranks=8, whole=8, leaving=True),
            "weights kept: 33.0G by pid 4711, being freed",
        ),
    ],
)
def test_status_names_who_holds_weights(kept: KeptWeights, words: str) -> None:
    node = msgspec.structs.replace(snapshot(crashed()), kept=kept)
    assert words in list(screen(node))


def test_status_after_a_crash() -> None:
    lines = list(screen(snapshot(crashed())))
    (dead,) = (line for line in lines if line.startswith("✖ "))
    assert dead.split()[1:3] == ["3", "capture"]
    assert dead.endswith("killed by SIGKILL")
    assert "rank 3 failed first: killed by SIGKILL in capture" in lines
    assert "  RuntimeError: no such bucket" in lines


def test_status_fits_80_columns() -> None:
    view = launch(
        LaunchState.LAUNCHING,
        chips=("tp8", "ep8", "ngram:4", "graphs≤4096") * 4,
        processes=tuple(
            rank(
                number, "capture", done=17, total=35, detail=64, pid=4194304, rss=99 << 30,
                last_line="広い" * 60, beat_age=100.0, cpu=100.0,
            )
            for number in range(8)
        ),
    )  # fmt: skip
    lines = list(screen(snapshot(view)))
    assert "capture 17/35 bs 64" in lines[3]
    assert all(len(line) + line.count("広") + line.count("い") <= 80 for line in lines)
    assert all(
        line.isascii() for line in screen(snapshot(launch(chips=("tp8",))), ascii_signs=True)
    )


def test_status_wraps_what_must_not_be_cut() -> None:
    view = crashed()
    assert view.verdict is not None
    verdict = msgspec.structs.replace(view.verdict, headline="rank 3 failed first: " + "why " * 40)
    lines = list(screen(snapshot(msgspec.structs.replace(view, verdict=verdict))))
    told = lines[lines.index(next(line for line in lines if line.startswith("rank 3"))) :]
    assert "".join(told).count("why") == 40
    assert all(len(line) <= 80 for line in lines)


def test_status_before_any_launch(supervisor: FakeSupervisor, moepanel: Run) -> None:
    supervisor.show(snapshot())
    assert "moepanel up" in moepanel("status").stdout


@pytest.mark.parametrize("words", [("status",), ("down",), ("shutdown",)])
def test_without_supervisor(moepanel: Run, words: tuple[str, ...]) -> None:
    done = moepanel(*words)
    assert done.exit_code == 3
    assert done.stderr == "moepanel: no supervisor runs\n  moepanel up starts one\n"


def test_an_answer_of_another_version(supervisor: FakeSupervisor, moepanel: Run) -> None:
    supervisor.answer("GET /v1/snapshot", b'{"other": 1}')
    done = moepanel("status")
    assert done.exit_code == 1
    assert "not understood" in done.stderr


def test_plan(supervisor: FakeSupervisor, moepanel: Run) -> None:
    plan = Plan(
        request=REQUEST,
        engine="builtin",
        version="0.1.0",
        world_size=8,
        flags=(Resolved(name="ep-size", value="8", origin="request"),),
        argv=("--ep-size=8",),
        memory=(Memory(category="weights", predicted=3 << 20),),
        problems=(Problem(severity="warning", text="It is slow.", remedy={"ep-size": "1"}),),
        changes=(Change(name="ep-size", before=None, after="8"),),
    )
    supervisor.answer("POST /v1/plan?base=profile", plan)
    done = moepanel("plan", "--set", "ep-size=8")
    assert done.exit_code == 0
    for words in (
        "ep-size = 8  (request)",
        "3.0M",
        "not set → 8",
        "! It is slow.",
        "--set ep-size=1",
    ):
        assert words in done.stdout
    bad = msgspec.structs.replace(plan, problems=(Problem(severity="refusal", text="No."),))
    supervisor.answer("POST /v1/plan?base=profile", bad)
    done = moepanel("plan", "--json")
    assert done.exit_code == 1
    assert msgspec.json.decode(done.stdout, type=Plan) == bad


def test_plan_without_supervisor(moepanel: Run, free_port: int) -> None:
    words = ("plan", "--profile", "tiny", "--set", f"port={free_port}", "--json")
    plan = msgspec.json.decode(moepanel(*words).stdout, type=Plan)
    assert (plan.engine, plan.world_size) == ("builtin", 8)
    assert Resolved(name="port", value=str(free_port), origin="request") in plan.flags
    assert moepanel("plan", "--set", "ep-siz=8").exit_code == 2


@pytest.fixture
def ledger(home: Path) -> list[LaunchRecord]:
    """Two launches of the past."""
    records = [
        LaunchRecord(
            id=number,
            uuid=str(number),
            request=Request(profile="tiny", set={"ep-size": "8"} if number == 2 else {}),
            engine="builtin",
            version="0.1.0",
            state=LaunchState.STOPPED,
            t0_unix=1_790_000_000.0,
            ready_s=4.0 + number,
            flags={"port": "30000", "ep-size": "8" if number == 2 else "1"},
            phases={"weights": 1.25},
            outcome="stopped by the operator",
            tok_s=50.0 * number,
            versions={"torch": f"2.1{number}"},
        )
        for number in (1, 2)
    ]
    found = find_home()
    found.prepare()
    book = Ledger(found.ledger)
    for record in records:
        book.put(record)
    book.close()
    return records


def test_history(ledger: list[LaunchRecord], moepanel: Run) -> None:
    done = moepanel("history", "--json")
    assert msgspec.json.decode(done.stdout, type=list[LaunchRecord]) == ledger[::-1]
    head, newest, _ = moepanel("history").stdout.splitlines()
    assert head.split()[:2] == ["id", "started"]
    assert newest.split()[0] == "2"
    assert "ep-size=8" in newest
    assert len(json.loads(moepanel("history", "--limit", "1", "--json").stdout)) == 1


def test_history_of_a_fresh_home(moepanel: Run) -> None:
    assert moepanel("history", "--json").stdout == "[]\n"
    assert moepanel("history").exit_code == 0
    assert moepanel("diff", "1", "2").exit_code == 3


def test_diff(ledger: list[LaunchRecord], moepanel: Run) -> None:
    done = moepanel("diff", "-2", "-1", "--json")
    told = msgspec.json.decode(done.stdout, type=Difference)
    assert (told.before, told.after) == (ledger[0], ledger[1])
    assert told.changes == (Change(name="ep-size", before="1", after="8"),)
    assert told.versions == (Change(name="torch", before="2.11", after="2.12"),)
    rows = [line.split() for line in moepanel("diff", "1", "2").stdout.splitlines()]
    assert ["ep-size", "1", "8"] in rows
    assert ["tok/s", "50.0", "100.0"] in rows
    assert ["ready", "5.0s", "6.0s"] in rows
    assert ["#2:", "stopped", "by", "the", "operator"] in rows
    assert moepanel("diff", "1", "7").exit_code == 3
    assert moepanel("diff", "1", "x").exit_code == 2


def test_doctor(home: Path, moepanel: Run, free_port: int) -> None:
    found = find_home()
    found.prepare()
    profile = f'engine = "builtin"\n[flags]\nport = {free_port}\n'
    (found.profiles / "tiny.toml").write_text(profile)
    done = moepanel("doctor", "--json")
    checks = msgspec.json.decode(done.stdout, type=list[Check])
    assert done.exit_code == any(check.grade == "fail" for check in checks)
    by_name = {check.name: check for check in checks}
    assert by_name["python"].grade == "pass"
    assert by_name["port"].text == f"127.0.0.1:{free_port} is free"
    assert by_name["home"].grade == "pass"
    words = moepanel("doctor").stdout
    assert all(check.text in words for check in checks if check.name != "disk")


def test_a_broken_profile_is_named_and_the_others_are_there(moepanel: Run) -> None:
    found = find_home()
    found.prepare()
    (found.profiles / "bad.toml").write_text("engine = builtin\n")
    done = moepanel("profile", "list")
    assert (done.exit_code, done.stdout.split()[0]) == (1, "deepseek-v2-lite-8x141-builtin")
    assert "tiny " in done.stdout
    assert done.stderr.startswith("moepanel: left out: bad\n")
    assert str(found.profiles / "bad.toml") in done.stderr
    done = moepanel("profile", "list", "--json")
    assert (done.exit_code, "tiny" in done.stdout) == (1, True)
    check = _profile_check(moepanel)
    assert (check.grade, "bad.toml" in check.text) == ("warn", True)
    (found.profiles / "tiny.toml").write_text("engine = builtin\n")
    assert _profile_check(moepanel).grade == "fail"


def _profile_check(moepanel: Run) -> Check:
    checks = msgspec.json.decode(moepanel("doctor", "--json").stdout, type=list[Check])
    return next(check for check in checks if check.name == "profiles")


def test_import_hides_and_changes_nothing_unasked(moepanel: Run) -> None:
    command = ("--", "python", "-m", "sglang.launch_server", "--model-path", "/m")
    done = moepanel("profile", "import", "--name", "mine", *command)
    assert done.exit_code == 0, done.stderr
    path = Path(done.stdout.strip())
    before = path.read_text()
    done = moepanel("profile", "import", "--name", "mine", *command, "--tp", "8")
    assert (done.exit_code, "--force" in done.stderr, path.read_text()) == (2, True, before)
    done = moepanel("profile", "import", "--name", "mine", "--force", *command, "--tp", "8")
    assert (done.exit_code, done.stderr) == (0, "")
    assert path.read_text() != before
    done = moepanel("profile", "import", "--name", "tiny", *command)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "would hide it" in done.stderr
    done = moepanel("profile", "import", "--name", "tiny", "--force", *command)
    assert done.exit_code == 0
    assert "hides the shipped recipe tiny" in done.stderr


def test_doctor_knows_our_own_port(supervisor: FakeSupervisor, moepanel: Run) -> None:
    supervisor.show(snapshot(launch()))
    checks = msgspec.json.decode(moepanel("doctor", "--json").stdout, type=list[Check])
    assert "127.0.0.1:30000 serves launch #17" in [check.text for check in checks]


def test_fit() -> None:
    assert fit("abc", 2) == "ab"
    assert fit("a広b", 3) == "a広"
    assert fit("a広b", 2) == "a"
    assert fit("e\u0301x", 1) == "e\u0301"


def test_status_imports_nothing_heavy(supervisor: FakeSupervisor) -> None:
    supervisor.show(snapshot(launch()))
    code = (
        "import sys; from panel.cli import main; main(['status'], standalone_mode=False);"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert "serving" in done.stdout
    heavy = {"textual", "torch", "httpx", "starlette", "uvicorn", "sqlite3", "psutil", "asyncio"}
    assert not heavy & set(done.stderr.split())


def test_help_names_every_command(moepanel: Run) -> None:
    text = moepanel("--help").stdout
    for name in ("up", "relaunch", "down", "status", "logs", "history", "diff", "doctor", "serve"):
        assert f"  {name} " in text
    assert moepanel("upp").exit_code == 2
    assert moepanel("--version").stdout.startswith("moepanel ")
