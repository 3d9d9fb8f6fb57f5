"""Reports of the kernel, and whom they concern."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panel.probes.gpu.device import bus_id
from panel.probes.kernel.lines import KernelLine, parse_line, rank_of, words
from panel.probes.kernel.reader import KernelLog, journal_record, kmsg_record

LINES = [
    (
        "NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.",
        ("xid", "0000:06:00.0", None, 79),
    ),
    (
        "NVRM: Xid (PCI:0000:06:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off",
        ("xid", "0000:06:00.0", None, 79),
    ),
    (
        "[  388.565288] NVRM: Xid (PCI:0000:41:00): 8, pid=48694, name=python3, channel 0x8",
        ("xid", "0000:41:00.0", 48694, 8),
    ),
    (
        "nvidia-nvswitch1: SXid (PCI:0000:aa:00.0): 24007, Severity 1 Engine instance 00",
        ("sxid", "0000:aa:00.0", None, 24007),
    ),
    (
        "pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: 0000:41:00.0",
        ("aer", "0000:40:01.1", None, None),
    ),
    (
        "pcieport 0000:40:01.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=Data Link",
        ("aer", "0000:40:01.1", None, None),
    ),
    (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=sglang::schedul,pid=77,uid=0",
        ("oom", None, 77, None),
    ),
    (
        "Memory cgroup out of memory: Killed process 77 (sglang::schedul) total-vm:9kB",
        ("oom", None, 77, None),
    ),
    ("Out of memory: Killed process 78 (VLLM::Worker_TP)", ("oom", None, 78, None)),
    (
        "python3[4711]: segfault at 0 ip 00007f sp 00007f error 4 in libnccl.so.2[7f+1]",
        ("segfault", None, 4711, None),
    ),
    (
        "traps: python3[4712] general protection fault ip:7f sp:7f error:0",
        ("segfault", None, 4712, None),
    ),
]


@pytest.mark.parametrize(("text", "found"), LINES, ids=[text[:30] for text, _ in LINES])
def test_reports(text: str, found: tuple[str, str | None, int | None, int | None]) -> None:
    line = parse_line(text)
    assert line is not None
    assert (line.kind, line.bus_id, line.pid, line.number) == found
    assert words(line)


@pytest.mark.parametrize(
    "text",
    ["usb 1-1: new device", "eth0: link up", "pcieport 0000:40:01.1: AER: enabled with IRQ 30", ""],
)
def test_other_lines_are_passed_over(text: str) -> None:
    assert parse_line(text) is None


@given(st.text())
def test_any_text_can_come(text: str) -> None:
    parse_line(text)


@pytest.mark.parametrize(
    "text", ["0000:06:00", "00000000:06:00.0", "0000:06:00.0", "00000000:06:00"]
)
def test_bus_ids_of_kernel_and_driver_are_one(text: str) -> None:
    assert bus_id(text) == "0000:06:00.0"


def test_ranks_by_process_then_by_bus() -> None:
    xid = KernelLine(kind="xid", text="", bus_id="0000:41:00.0", pid=9, number=8)
    assert rank_of(xid, {"0000:41:00.0": 5}, {9: 2}) == 2
    assert rank_of(xid, {"0000:41:00.0": 5}, {}) == 5
    assert rank_of(xid, {}, {}) is None


def test_records_of_both_sources() -> None:
    record = b"4,1234,98765432,-;NVRM: Xid (PCI:0000:06:00): 79, gone\n SUBSYSTEM=pci\n"
    assert kmsg_record(record) == (98.765432, "NVRM: Xid (PCI:0000:06:00): 79, gone")
    line = b'{"__MONOTONIC_TIMESTAMP":"98765432","MESSAGE":"hello"}'
    assert journal_record(line) == (98.765432, "hello")
    assert journal_record(b"not json") == (0.0, "")


def test_follows_the_log(tmp_path: Path) -> None:
    taken: list[tuple[float, KernelLine]] = []
    seen = threading.Event()

    def take(t: float, line: KernelLine) -> None:
        taken.append((t, line))
        seen.set()

    log = KernelLog(take, tmp_path / "kmsg")
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    log.follow(reader)
    os.write(writer, b"4,1,2000000,-;NVRM: Xid (PCI:0000:06:00): 79, gone\n")
    assert seen.wait(5)
    log.close()
    os.close(writer)
    assert [(t, line.number) for t, line in taken] == [(2.0, 79)]


def test_an_unreadable_log_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    log = KernelLog(lambda *_: None, tmp_path / "kmsg")
    log.start()
    assert "No such file" in log.trouble
    assert "no journal" in log.trouble
    log.close()


def test_the_journal_is_the_second_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journalctl = tmp_path / "journalctl"
    message = '{"__MONOTONIC_TIMESTAMP":"5000000","MESSAGE":"Out of memory: Killed process 7 (x)"}'
    journalctl.write_text(
        f"#!/bin/sh\necho '{message}'\ncase \"$*\" in *-f*) exec /bin/sleep 60;; esac\n"
    )
    journalctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    seen = threading.Event()
    taken: list[KernelLine] = []

    def take(_: float, line: KernelLine) -> None:
        taken.append(line)
        seen.set()

    log = KernelLog(take, tmp_path / "kmsg")
    log.start()
    assert log.source == "journal"
    assert seen.wait(5)
    log.close()
    assert taken[0].pid == 7
