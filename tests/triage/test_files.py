"""Raw logs of any machine, alone and several together."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from panel.domain.errors import NotFoundError
from panel.triage.folder import triage_files, triage_folder

TRACE = """Traceback (most recent call last):
  File "/srv/run.py", line 2, in step
    step()
ZeroDivisionError: division by zero
"""
GLOO = "RuntimeError: [/x/gloo/transport/tcp/pair.cc:534] Connection closed by peer [::1]:4"


LOST = "rank 3 (pid 9) is gone at step 0; look in the log of rank 3"


def write(folder: Path, **texts: str) -> list[Path]:
    paths = []
    for name, text in texts.items():
        paths.append(folder / f"{name.replace('_', '-')}.log")
        paths[-1].write_text(text)
    return paths


def test_rank_is_taken_from_the_name_of_the_file(tmp_path: Path) -> None:
    paths = write(tmp_path, rank_0="fine\n", rank_1=TRACE, rank_2="fine\n")
    found = triage_files(paths)
    assert (found.status, found.kind, found.root_ranks) == ("crashed", "unknown_exception", (1,))
    assert found.evidence[0].source == "rank-1"
    assert (found.evidence[0].line, found.evidence[0].text) == (
        4,
        "ZeroDivisionError: division by zero",
    )
    assert found.evidence[0].offset == TRACE.index("ZeroDivision")


def test_printed_times_order_the_sources_where_nobody_noted_arrivals(tmp_path: Path) -> None:
    def record(clock: str, text: str) -> str:
        return f"[2026-03-04 {clock}.000 TP0] ERROR Traceback (most recent call last):\n" + "".join(
            f"[2026-03-04 {clock}.000 TP0] ERROR {line}\n" for line in text.splitlines()[1:]
        )

    late = TRACE.replace("ZeroDivisionError: division by zero", "KeyError: 'x'")
    paths = write(tmp_path, rank_0=record("10:00:09", late), rank_1=record("10:00:01", TRACE))
    assert triage_files(paths).root_ranks == (1,)


def test_kernel_log_beside_an_engine_log(tmp_path: Path) -> None:
    engine = "".join(
        f"[2026-03-04 10:00:0{rank} TP{rank}] Init torch distributed begin.\n" for rank in range(4)
    )
    fault = "[2026-03-04 10:20:00 TP2] Scheduler hit an exception: " + TRACE.replace(
        "ZeroDivisionError: division by zero",
        "RuntimeError: CUDA error: unspecified launch failure",
    )
    xid = "NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus."
    stamp = "[Wed Mar  4 10:{minute}:58 2026] "
    paths = write(tmp_path, engine=engine + fault, dmesg=stamp.format(minute=19) + xid + "\n")
    found = triage_files(paths)
    assert (found.kind, found.root_ranks) == ("xid_79", (2,))

    old = write(tmp_path, engine=engine + fault, dmesg=stamp.format(minute="02") + xid + "\n")
    assert triage_files(old).kind == "gpu_fault_rocm_or_launch"


@pytest.mark.parametrize(
    "prefix",
    ["engine-1  | ", "2026-03-04T10:00:00.5Z stderr F ", "  3: ", "[1,3]<stderr>:", "[default3]:"],
)
def test_wrappers_of_launchers_are_seen_through(tmp_path: Path, prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in ("starting", *TRACE.splitlines()))
    found = triage_files(write(tmp_path, job=text))
    assert (found.status, found.kind) == ("crashed", "unknown_exception")
    assert found.root_ranks == ((3,) if "3" in prefix.split("<")[0][-4:] else ())


def test_secrets_stay_in_the_log(tmp_path: Path) -> None:
    text = TRACE.replace("division by zero", "--api-key sk-abcdefghijklmnop1234")
    found = triage_files(write(tmp_path, rank_0=text))
    assert "abcdefghijklmnop" not in f"{found.headline}{found.evidence}"


def test_what_could_not_be_known_is_said(tmp_path: Path) -> None:
    (path,) = write(tmp_path, engine=GLOO + "\n")
    told = " ".join(triage_files([path]).missing)
    assert all(word in told for word in ("launch.json", "events.jsonl", "arrival", "kernel"))


def said(who: str, text: str) -> str:
    return f"[2026-03-04 10:00:05.000 {who}] ERROR {text}\n"


@pytest.mark.parametrize(
    "texts",
    [
        {"rank_0": said("TP0 capture", LOST)},
        {"rank_0": said("TP0 capture", LOST), "rank_1": said("TP1 capture", LOST)},
        {"frontend": said("API stopped", f"the engine stopped: {LOST}; this process ends too")},
    ],
)
def test_a_rank_whose_log_is_not_given_is_not_said_to_be_silent(
    tmp_path: Path, texts: dict[str, str]
) -> None:
    found = triage_files(write(tmp_path, **texts))
    assert found.headline == "rank 3 failed first: ended; its own log is not here"
    assert (found.root_ranks, found.confidence, found.phase) == ((3,), "low", None)
    assert found.missing[0] == "log of rank 3"
    assert found.advice[0].confirm is not None
    assert found.advice[0].confirm.startswith("give the log of that rank")


@pytest.mark.parametrize(
    "texts",
    [
        {"rank_0": said("TP0 capture", LOST), "rank_3": ""},
        {"rank_0": said("TP0 capture", LOST), "rank_3": said("TP3 capture", "begins")},
        {"engine": said("TP3 capture", "begins") + said("TP0 capture", LOST)},
        {"engine": said("TP0 capture", LOST)},
    ],
)
def test_a_rank_whose_log_is_there_died_without_a_word(
    tmp_path: Path, texts: dict[str, str]
) -> None:
    found = triage_files(write(tmp_path, **texts))
    assert (found.kind, found.root_ranks) == ("worker_died_silent", (3,))
    assert "log of rank 3" not in found.missing


def test_empty_log_is_no_log_of_an_engine(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no engine log in this"):
        triage_files(write(tmp_path, engine=""))


def test_packed_log_of_a_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "rank-1.log.gz").write_bytes(gzip.compress(TRACE.encode()))
    assert triage_folder(tmp_path).root_ranks == (1,)


def test_torn_files_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    write(tmp_path, engine="fine\n")
    (tmp_path / "launch.json").write_text("{")
    (tmp_path / "events.jsonl").write_bytes(
        b'{"t": 1, "kind": "spawn", "source": "rank-0", "pid": 5, "rank": 0}\n'
        b'{"t": 1, "kind": "later-than-this-version"}\n'
        b'{"t": 2, "kind": "exit", "pid": 5, "code": -9}\n{"t": 3, "ki'
    )
    found = triage_folder(tmp_path)
    assert (found.status, found.root_ranks, found.final) == ("crashed", (0,), True)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="holds no log"):
        triage_folder(tmp_path)
    with pytest.raises(NotFoundError, match="is no file"):
        triage_files([tmp_path / "none.log"])
