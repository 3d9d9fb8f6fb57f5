"""What the evidence says beyond the launch itself: operators' notes, and what is new since it last
went well."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from panel.domain.errors import UsageError
from panel.domain.flags import Request
from panel.domain.notes import Notes
from panel.domain.plan import Change
from panel.domain.states import LaunchState
from panel.domain.wire import LaunchRecord
from panel.probes.libraries import libraries
from panel.supervisor.evidence import LaunchSpec, read_json
from panel.supervisor.ledger import Ledger
from panel.supervisor.notes import add_note, read_notes
from tests.supervisor.support import Supervised


def test_notes_stay_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    assert read_notes(tmp_path) == Notes()
    add_note(tmp_path, "first\nline")
    kept = add_note(tmp_path, "set api_key=abcdefabcdef")
    assert kept.notes[0].text == "first line"
    assert "abcdefabcdef" not in kept.notes[1].text
    assert kept.notes[0].t_unix <= kept.notes[1].t_unix
    file = tmp_path / "notes.jsonl"
    assert file.stat().st_mode & 0o077 == 0
    file.write_bytes(file.read_bytes() + b'{"text": "to')
    assert read_notes(tmp_path) == kept


@pytest.mark.parametrize("text", ["", "  \n", "x" * 2001])
def test_a_note_says_something(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        add_note(tmp_path, text)
    assert not (tmp_path / "notes.jsonl").exists()


def test_notes_and_news_of_real_launches(node: Supervised, free_port: int) -> None:
    first = node.up(port=free_port)
    path = f"/v1/launches/{first.id}/notes"
    node.post(path, text="new riser in slot 3")
    assert [note.text for note in node.get(path, Notes).notes] == ["new riser in slot 3"]
    assert node.http.post(path, content=b"[]").status_code == 400
    assert node.http.get("/v1/launches/99/notes").status_code == 404
    node.post("/v1/down")
    node.wait_launch(first.id, LaunchState.STOPPED)

    second = node.up(**{"port": free_port, "log-level": "debug"})
    specs = [
        read_json(node.home.launch(each.id) / "launch.json", LaunchSpec) for each in (first, second)
    ]
    assert specs[0] is not None
    assert specs[0].since is None
    assert specs[1] is not None
    assert specs[1].since is not None
    assert specs[1].since.launch == first.id
    assert Change(name="log-level", before=None, after="debug") in specs[1].since.flags
    assert specs[1].since.versions == ()


def record(number: int, state: LaunchState, ready_s: float | None, profile: str) -> LaunchRecord:
    return LaunchRecord(
        id=number, uuid=f"u{number}", request=Request(profile=profile), engine="builtin",
        version="1", state=state, t0_unix=5.0, ready_s=ready_s,
    )  # fmt: skip


def test_the_last_good_launch_is_one_that_got_ready_and_did_not_fail(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    assert ledger.last_good("tiny") is None
    good = record(1, LaunchState.STOPPED, 4.0, "tiny")
    for each in (
        good,
        record(2, LaunchState.CRASHED, 4.0, "tiny"),
        record(3, LaunchState.STOPPED, None, "tiny"),
        record(4, LaunchState.STOPPED, 4.0, "kimi"),
    ):
        ledger.put(each)
    assert ledger.last_good("tiny") == msgspec.structs.replace(good)
    ledger.close()


def test_libraries_are_read_off_the_folders_of_an_interpreter(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.12/site-packages"
    for name in ("flashinfer_python-0.6.8.dist-info", "torch-2.11.0+cu130.dist-info",
                 "rich-14.0.dist-info", "triton"):  # fmt: skip
        (site / name).mkdir(parents=True)
    found = libraries(str(tmp_path / "bin/python"))
    assert found == {"flashinfer-python": "0.6.8", "torch": "2.11.0+cu130"}
    assert libraries(str(tmp_path / "none/bin/python")) == {}
    assert "torch" in libraries()
