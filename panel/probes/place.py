"""Folders, disk and port that a launch uses."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Iterable
from pathlib import Path

from panel.probes.check import Check

GIB = 1 << 30


def read_disk(folder: Path) -> int:
    """Return free bytes where `folder` is or will be."""
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    return shutil.disk_usage(existing).free


def disk(folder: Path, free: int) -> Check:
    """Judge the room for logs: each source keeps up to 512 MiB."""
    text = f"{free / GIB:.1f} GiB free in {folder}"
    if free >= 8 * GIB:
        return Check(name="disk", grade="pass", text=text)
    mend = f"du -sh {folder}/launches/*, then remove old ones"
    if free < GIB // 2:
        text += ": too little for the logs of one launch"
        return Check(name="disk", grade="fail", text=text, mend=mend)
    text += ": eight ranks keep up to 4 GiB of logs a launch"
    return Check(name="disk", grade="warn", text=text, mend=mend)


def read_modes(folders: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """Return mode bits and owner of those folders that exist."""
    return {
        folder: (stat.st_mode & 0o777, stat.st_uid)
        for folder in folders
        if folder.exists()
        for stat in (folder.stat(),)
    }


def home(modes: dict[Path, tuple[int, int]], user: int) -> Check:
    """Judge whether others can read logs and requests, or we cannot write ours."""
    foreign = [str(folder) for folder, (_, owner) in modes.items() if owner != user]
    if foreign:
        text = f"{foreign[0]} belongs to another user"
        mend = f"sudo chown -R {user} {' '.join(foreign)}"
        return Check(name="home", grade="fail", text=text, mend=mend)
    open_ = [str(folder) for folder, (mode, _) in modes.items() if mode & 0o077]
    if open_:
        text = f"{open_[0]} is open to others; logs may hold secrets"
        return Check(name="home", grade="warn", text=text, mend=f"chmod -R go= {' '.join(open_)}")
    text = ", ".join(map(str, modes)) or "not made yet"
    return Check(name="home", grade="pass" if modes else "info", text=text)


def read_port(host: str, port: int) -> str:
    """Return why nobody can listen there now; empty where one can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            return "taken by another program" if taken else os.strerror(error.errno or 0)
    return ""


def port(host: str, number: int, trouble: str, launch: int | None) -> Check:
    """Judge the API's port; `launch` is the running launch that serves there."""
    where = f"{host}:{number}"
    if launch is not None:
        return Check(name="port", grade="pass", text=f"{where} serves launch #{launch}")
    if not trouble:
        return Check(name="port", grade="pass", text=f"{where} is free")
    return Check(
        name="port",
        grade="fail",
        text=f"{where} {trouble}",
        mend=f"ss -ltnp 'sport = :{number}', or moepanel up --set port={number + 1}",
    )
