"""The NCCL that this process has loaded with torch."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import torch

_WHEELS = ("nvidia-nccl-cu12", "nvidia-nccl-cu13")


def describe_nccl() -> str | None:
    """Return version, file and wheels in words; None where torch has no NCCL."""
    try:
        version = ".".join(map(str, torch.cuda.nccl.version()))
    except (AttributeError, RuntimeError):
        return None
    text = f"NCCL {version} of {_library() or 'torch itself'}"
    if found := _wheels():
        text += f", {' and '.join(found)}"
    if len(found) > 1:
        text += ": these wheels overwrite each other's files; leave the one of torch's CUDA version"
    return text


def _wheels() -> list[str]:
    found = []
    for name in _WHEELS:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _library() -> str | None:
    """Return the file that is mapped, which need not be the one that was meant."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return next((line.split()[-1] for line in lines if "/libnccl" in line), None)
