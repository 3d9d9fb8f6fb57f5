"""Drills: `--fault rank=R,phase=P,kind=K[,after=T]` makes one rank fail on purpose."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import time
from dataclasses import dataclass
from enum import StrEnum

from panel.server.options import OptionError, nearest
from panel.server.phases import Phase

log = logging.getLogger(__name__)

SERVING_DELAY = 3.0
"""Seconds after which a drill in `serving` fires where none are given."""
_PIECE = 1 << 30
"""Bytes of the GPU that the drill `oom` takes at a time."""


class Kind(StrEnum):
    """The ways to fail."""

    ASSERT = "assert"
    EXCEPTION = "exception"
    OOM = "oom"
    SEGV = "segv"
    KILL = "kill"
    EXIT = "exit"
    HANG = "hang"
    SLOW = "slow"
    NAN = "nan"
    ILLEGAL_ACCESS = "illegal-access"
    """On a GPU alone."""
    PARTIAL_TRACEBACK = "partial-traceback"


@dataclass(frozen=True, slots=True)
class Fault:
    """One drill."""

    rank: int
    phase: Phase
    kind: Kind
    after: float
    """Seconds between entering the phase and the failure."""
    device: str = "cpu"
    """Where the rank computes: `cpu`, `cuda:3`. It may not have touched it yet."""


def parse_fault(text: str, tp_size: int) -> Fault:
    """Return the drill of a flag's text; anything unknown is refused with the valid names."""
    form = "rank=R,phase=P,kind=K[,after=T]"
    pairs = dict(part.partition("=")[::2] for part in text.split(","))
    unknown = pairs.keys() - {"rank", "phase", "kind", "after"}
    missing = {"rank", "phase", "kind"} - pairs.keys()
    if unknown or missing:
        what = f"unknown key {min(unknown)!r}" if unknown else f"{min(missing)} is missing"
        raise OptionError(f"fault: {what} in {text!r}; write {form}")
    for key, names in (("phase", [*Phase]), ("kind", [*Kind])):
        if pairs[key] not in names:
            raise OptionError(
                f"fault: {key} {pairs[key]!r} is not one of {', '.join(names)}"
                f"{nearest(pairs[key], [str(name) for name in names])}"
            )
    phase = Phase(pairs["phase"])
    try:
        rank = int(pairs["rank"])
        after = float(pairs.get("after", SERVING_DELAY if phase is Phase.SERVING else 0.0))
    except ValueError:
        raise OptionError(f"fault: rank and after are numbers in {form}, not {text!r}") from None
    if not 0 <= rank < tp_size:
        raise OptionError(f"fault: rank {rank} does not exist; ranks are 0 to {tp_size - 1}")
    if not after >= 0:
        raise OptionError(f"fault: after={after:g} is below 0")
    return Fault(rank, phase, Kind(pairs["kind"]), after)


def fire(fault: Fault) -> None:
    """Fail now; `slow` and `nan` are not failures of a moment and are left to the caller."""
    log.warning("drill: %s", fault.kind)
    match fault.kind:
        case Kind.ASSERT:
            raise AssertionError
        case Kind.EXCEPTION:
            raise RuntimeError("drill: an exception on purpose")
        case Kind.OOM:
            _run_out_of_memory(fault.device)
        case Kind.SEGV:
            faulthandler._sigsegv()  # type: ignore[attr-defined]
        case Kind.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case Kind.EXIT:
            os._exit(7)
        case Kind.HANG:
            # A rank stuck in a kernel or a system call runs no signal handlers either.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
            while True:
                time.sleep(3600)
        case Kind.ILLEGAL_ACCESS:
            _write_astray(fault.device)
        case Kind.PARTIAL_TRACEBACK:
            log.error('Traceback (most recent call last):\n  File "%s", line', __file__)
            os.kill(os.getpid(), signal.SIGKILL)


def _run_out_of_memory(device: str) -> None:
    """Take memory until there is none left: of the GPU, where this rank has one."""
    # The panel reads this module too, and does without torch.
    import torch

    if device == "cpu":
        raise MemoryError("drill: tried to allocate more memory than there is")
    torch.cuda.set_device(device)
    held = []
    while True:
        held.append(torch.empty(_PIECE, dtype=torch.uint8, device=device))


def _write_astray(device: str) -> None:
    import torch

    from panel.kernels.stray import write_astray

    torch.cuda.set_device(device)
    write_astray(torch.device(device))
