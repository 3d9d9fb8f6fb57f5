"""`python -m panel.probes.gpu`: reports on the GPUs, a JSON line each, until nobody reads them.

A process of its own: a call into the driver can hang for ever once a GPU is lost, in a state in
which neither signals nor an exit of the process end it.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import msgspec
import pynvml

from panel.probes.gpu.device import nvml_words
from panel.probes.gpu.library import Nvml, real
from panel.probes.gpu.sampler import FAST_S, Absent, Report, Sampler, watch_faults

_writing = threading.Lock()


def main() -> int:
    """Sample until standard output breaks; return the exit code."""
    nvml = real()
    try:
        nvml.nvmlInit()
        sampler = Sampler(nvml)
        threading.Thread(target=_faults, args=(nvml,), daemon=True).start()
        due = time.monotonic()
        while True:
            _say(sampler.tick())
            due = max(due + FAST_S, time.monotonic())
            time.sleep(due - time.monotonic())
    except pynvml.NVMLError as error:
        _say(Absent(nvml_words(error)))
        return 1
    except BrokenPipeError:
        # Python must not try to flush what nobody reads.
        os._exit(0)


def _faults(nvml: Nvml) -> None:
    try:
        for fault in watch_faults(nvml):
            if fault is not None:
                _say(fault)
    except (pynvml.NVMLError, BrokenPipeError):
        # The other thread meets the same, and says so.
        return


def _say(report: Report) -> None:
    line = msgspec.json.encode(report) + b"\n"
    with _writing:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
