"""Reads the kernel's log as it grows: from /dev/kmsg, else from the journal."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from panel.probes.kernel.lines import KernelLine, parse_line

KMSG = Path("/dev/kmsg")
_RECORD = 8192
_JOURNAL = ("journalctl", "-k", "-f", "-o", "json", "-n", "0")
Take = Callable[[float, KernelLine], None]
"""Gets CLOCK_MONOTONIC seconds of the line and the line."""


class KernelLog:
    """Follows the log on a thread of its own; `trouble` says why it cannot."""

    def __init__(self, take: Take, kmsg: Path = KMSG) -> None:
        self.trouble = ""
        self.source = ""
        self._take = take
        self._kmsg = kmsg
        self._stop, self._wake = os.pipe()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin with what comes from now on; sets `source`, or `trouble`."""
        try:
            descriptor = os.open(self._kmsg, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(descriptor, 0, os.SEEK_END)
        except OSError as error:
            if not journal_readable():
                self.trouble = f"{self._kmsg}: {os.strerror(error.errno or 0)}; no journal either"
                return
            self.source = "journal"
            process = subprocess.Popen(_JOURNAL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self._run(self._journal_lines(process))
        else:
            self.follow(descriptor)

    def follow(self, descriptor: int) -> None:
        """Read records of the form of /dev/kmsg from a descriptor, which is closed at the end."""
        self.source = str(self._kmsg)
        self._run(self._kmsg_lines(descriptor))

    def close(self) -> None:
        """End the thread."""
        os.close(self._wake)
        if self._thread is not None:
            self._thread.join(2)
        os.close(self._stop)

    def _run(self, lines: Iterator[tuple[float, str]]) -> None:
        def work() -> None:
            for t, text in lines:
                line = parse_line(text)
                if line is not None:
                    self._take(t, line)

        self._thread = threading.Thread(target=work, name="kernel log", daemon=True)
        self._thread.start()

    def _ready(self, descriptor: int) -> bool:
        """Wait until there is something to read; False where we are to end."""
        readable, _, _ = select.select([descriptor, self._stop], [], [])
        return self._stop not in readable

    def _kmsg_lines(self, descriptor: int) -> Iterator[tuple[float, str]]:
        try:
            while self._ready(descriptor):
                try:
                    record = os.read(descriptor, _RECORD)
                except BrokenPipeError:
                    # Records were overwritten before we came; the next read goes on behind them.
                    continue
                except BlockingIOError:
                    continue
                if not record:
                    return
                yield kmsg_record(record)
        finally:
            os.close(descriptor)

    def _journal_lines(self, process: subprocess.Popen[bytes]) -> Iterator[tuple[float, str]]:
        output = process.stdout
        assert output is not None
        try:
            yield from _journal_records(output, self._ready)
        finally:
            process.kill()
            process.wait()
            output.close()


def kmsg_record(record: bytes) -> tuple[float, str]:
    """Return the time (seconds of CLOCK_MONOTONIC) and the text of a record of /dev/kmsg."""
    prefix, _, rest = record.decode(errors="replace").partition(";")
    fields = prefix.split(",")
    text = rest.splitlines()[0] if rest else ""
    return (int(fields[2]) / 1e6 if len(fields) > 2 and fields[2].isdigit() else 0.0), text


def journal_record(line: bytes) -> tuple[float, str]:
    """Return the same of a line of `journalctl -o json`."""
    try:
        entry = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.DecodeError:
        return 0.0, ""
    stamp = str(entry.get("__MONOTONIC_TIMESTAMP", ""))
    seconds = int(stamp) / 1e6 if stamp.isdigit() else time.monotonic()
    return seconds, str(entry.get("MESSAGE", ""))


def journal_readable() -> bool:
    """Return whether the journal shows us the kernel's log."""
    if shutil.which(_JOURNAL[0]) is None:
        return False
    probe = subprocess.run(
        [_JOURNAL[0], "-k", "-n", "1", "-o", "json"], capture_output=True, timeout=5, check=False
    )
    # Without the right to read it journalctl shows an empty log, and does not fail.
    return not probe.returncode and bool(probe.stdout.strip())


def _journal_records(
    output: IO[bytes], ready: Callable[[int], bool]
) -> Iterator[tuple[float, str]]:
    pending = b""
    while ready(output.fileno()):
        data = os.read(output.fileno(), 1 << 16)
        if not data:
            return
        *lines, pending = (pending + data).split(b"\n")
        yield from map(journal_record, lines)
