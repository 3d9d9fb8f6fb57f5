"""Limits of the host and its kernel that a gang or its triage runs into."""

from __future__ import annotations

import getpass
import os
import re
import resource
import shutil
import subprocess
from pathlib import Path

from panel.probes.check import Check
from panel.probes.kernel.reader import KMSG, journal_readable

GIB = 1 << 30
_CAP_SYS_PTRACE = 19


def read_shm() -> int | None:
    """Return the size of /dev/shm in bytes, None where there is none."""
    try:
        stat = os.statvfs("/dev/shm")
    except OSError:
        return None
    return stat.f_blocks * stat.f_frsize


def shm(size: int | None) -> Check:
    """Judge /dev/shm, through which the ranks reduce."""
    mend = "mount -o remount,size=16g /dev/shm, in a container --shm-size=16g"
    if size is None:
        text = "missing: ranks cannot share memory"
        return Check(name="/dev/shm", grade="fail", text=text, mend=mend)
    text = f"{size / GIB:.1f} GiB"
    if size < GIB:
        text = f"{size >> 20} MiB: too little for NCCL between eight GPUs"
        return Check(name="/dev/shm", grade="warn", text=text, mend=mend)
    return Check(name="/dev/shm", grade="pass", text=text)


def read_open_files() -> int:
    """Return how many files a process of ours may have open; -1 without limit."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def open_files(limit: int) -> Check:
    """Judge the limit of open files; each stream of the API is one."""
    if limit == resource.RLIM_INFINITY or limit >= 4096:
        text = "no limit" if limit == resource.RLIM_INFINITY else str(limit)
        return Check(name="open files", grade="pass", text=text)
    text = f"{limit}: the API serves fewer streams than that at once"
    return Check(name="open files", grade="warn", text=text, mend="ulimit -n 65536")


def read_locked_memory() -> int:
    """Return how many bytes a process of ours may lock in memory; -1 without limit."""
    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]


def locked_memory(limit: int, gpus: int) -> Check:
    """Judge the limit of locked memory; copies to a GPU and NCCL need some."""
    if limit == resource.RLIM_INFINITY:
        return Check(name="memlock", grade="pass", text="no limit")
    text = f"{limit >> 20} MiB"
    if not gpus or limit >= 64 << 20:
        return Check(name="memlock", grade="pass", text=text)
    text += ": NCCL over RDMA fails to register its buffers"
    mend = "ulimit -l unlimited, in a container --ulimit memlock=-1"
    return Check(name="memlock", grade="warn", text=text, mend=mend)


def read_ptrace() -> tuple[int | None, bool]:
    """Return Yama's scope (None without Yama) and whether we may trace in spite of it."""
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        scope = None
    rights = re.search(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return scope, bool(rights and int(rights[1], 16) >> _CAP_SYS_PTRACE & 1)


def ptrace(scope: int | None, capable: bool) -> Check:
    """Judge whether stacks of running ranks can be taken."""
    if not scope or (capable and scope < 3):
        return Check(name="ptrace", grade="pass", text="stacks of running ranks can be taken")
    who = {1: "only a parent may trace", 2: "only root may trace"}.get(scope, "nobody may trace")
    return Check(
        name="ptrace",
        grade="warn",
        text=f"Yama scope {scope}, {who}: no stacks of hanging ranks from outside",
        mend="sudo sysctl kernel.yama.ptrace_scope=0" if scope < 3 else "",
    )


def read_kernel_log() -> str:
    """Return why the kernel log cannot be read; empty where it can, be it from the journal."""
    try:
        os.close(os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        return "" if journal_readable() else os.strerror(error.errno or 0)
    return ""


def kernel_log(trouble: str) -> Check:
    """Judge the kernel log, the only witness of Xids and of kills for want of memory."""
    if not trouble:
        return Check(name="kernel log", grade="pass", text="readable")
    return Check(
        name="kernel log",
        grade="warn",
        text=f"not available ({trouble}): GPU faults and kernel kills cannot be told from others",
        mend="sudo sysctl kernel.dmesg_restrict=0, or add yourself to the group adm",
    )


def read_logout() -> tuple[bool, bool] | None:
    """Return logind's KillUserProcesses and our Linger; None where no logind answers."""
    loginctl = shutil.which("loginctl")
    if loginctl is None:
        return None
    answers = []
    for words in (("show-session",), ("show-user", getpass.getuser())):
        answer = subprocess.run(
            [loginctl, *words], capture_output=True, text=True, timeout=3, check=False
        )
        answers.append(answer.stdout.splitlines())
    if not answers[0]:
        return None
    return "KillUserProcesses=yes" in answers[0], "Linger=yes" in answers[1]


def logout(answers: tuple[bool, bool] | None) -> Check:
    """Judge whether the supervisor and a gang outlive the session that started them."""
    if answers is None:
        return Check(name="logout", grade="info", text="no logind: a logout ends nothing")
    kills, lingers = answers
    if not kills:
        return Check(name="logout", grade="pass", text="processes outlive the session")
    return Check(
        name="logout",
        grade="warn",
        text="KillUserProcesses is on: a logout ends supervisor and gang"
        + (" unless started in a scope of its own" if lingers else ""),
        mend=("" if lingers else "loginctl enable-linger, then ")
        + "systemd-run --user --scope moepanel",
    )
