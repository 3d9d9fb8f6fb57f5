"""Whether we may look into a process, and what would let us."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

_REMEDIES = {
    0: "in a container: run it with --cap-add SYS_PTRACE",
    1: "sudo sysctl kernel.yama.ptrace_scope=0, or run the supervisor with CAP_SYS_PTRACE",
    2: "run the supervisor with CAP_SYS_PTRACE, or sudo sysctl kernel.yama.ptrace_scope=0",
    3: "kernel.yama.ptrace_scope=3 holds until the next boot: set it to 1 at most and reboot",
}


def yama_scope() -> int:
    """Return the kernel's setting; 0, the most permissive, where it has none."""
    try:
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return 0


def trouble(pid: int) -> str:
    """Return why the stacks of `pid` cannot be taken, with the remedy; empty where they can.

    Opening a process's memory asks the kernel the same question as attaching to it, and leaves the
    process alone.
    """
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM):
            return f"process {pid} is gone"
        return _refused(pid)
    # A seccomp filter refuses the call itself, whatever its arguments.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.process_vm_readv(pid, None, 0, None, 0, 0) < 0 and ctypes.get_errno() == errno.EPERM:
        return f"the container forbids looking into processes; {_REMEDIES[0]}"
    return ""


def _refused(pid: int) -> str:
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return f"process {pid} is gone"
    if owner != os.geteuid():
        return f"process {pid} belongs to user {owner}; run as that user, or as root"
    scope = yama_scope()
    remedy = _REMEDIES.get(scope, _REMEDIES[3])
    return f"no right to trace process {pid} (Yama scope {scope}); {remedy}"
