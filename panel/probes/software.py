"""Python and the engine's packages, judged by their metadata: nothing is imported."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from panel.probes.check import Check

ENGINE = ("torch", "triton", "safetensors", "tokenizers", "jinja2", "numpy")
NCCL = ("nvidia-nccl-cu12", "nvidia-nccl-cu13")


def installed(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed here."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def torch_cuda() -> str | None:
    """Return the CUDA version that torch was built for, None for a CPU build or without torch.

    Read from torch's own `version.py`: importing torch takes seconds.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text()
    except OSError:
        return None
    match = re.search(r"^cuda\b[^=]*=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return match[1] if match else None


def torch_nccl() -> str | None:
    """Return the version of NCCL that this torch was built with, None where it names none."""
    try:
        needs = importlib.metadata.requires("torch") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    pins = (re.match(r"nvidia-nccl-cu\d+\s*==\s*([\d.]+)", need) for need in needs)
    return next((pin[1] for pin in pins if pin), None)


def python(version: tuple[int, int, int] = sys.version_info[:3]) -> Check:
    """Judge the interpreter."""
    name = ".".join(map(str, version))
    if version < (3, 11):
        return Check(name="python", grade="fail", text=f"{name}; moepanel needs 3.11 or later")
    return Check(name="python", grade="pass", text=f"{name} ({sys.executable})")


def engine(versions: dict[str, str], cuda: str | None, driver_cuda: int | None) -> Check:
    """Judge the engine's packages.

    `versions` by package; `cuda` is torch's; `driver_cuda` the newest major version of CUDA that
    the driver serves, None without a driver.
    """
    extra = "engine" if driver_cuda is None else "cuda13" if driver_cuda >= 13 else "cuda12"
    mend = f"pip install 'moepanel[{extra}]'"
    if "torch" not in versions:
        text = "not installed: the panel works, the embedded engine and its profile tiny do not"
        return Check(name="engine", grade="warn", text=text, mend=mend)
    missing = [name for name in ENGINE if name not in versions and name != "triton"]
    if missing:
        text = f"incomplete: {', '.join(missing)} not installed"
        return Check(name="engine", grade="fail", text=text, mend=mend)
    build = f"CUDA {cuda}" if cuda else "CPU build"
    text = f"torch {versions['torch']} ({build}), triton {versions.get('triton', 'not installed')}"
    if driver_cuda is None:
        return Check(name="engine", grade="pass", text=text)
    if cuda is None:
        text += "; the GPUs of this node stay unused"
        return Check(name="engine", grade="warn", text=text, mend=mend)
    if int(cuda.split(".")[0]) > driver_cuda:
        text += f"; the driver serves CUDA {driver_cuda} at most"
        return Check(name="engine", grade="fail", text=text, mend=mend)
    return Check(name="engine", grade="pass", text=text)


def nccl(versions: dict[str, str], cuda: str | None, wanted: str | None) -> Check:
    """Judge the NCCL wheels: two of them overwrite each other's files.

    `cuda` is torch's; `wanted` the version of NCCL that torch was built with.
    """
    found = [name for name in NCCL if name in versions]
    if len(found) == 2:
        right = "nvidia-nccl-cu12" if (cuda or "").startswith("12") else "nvidia-nccl-cu13"
        return Check(
            name="nccl",
            grade="fail",
            text=f"{' and '.join(found)} in one environment: they overwrite each other's files",
            mend=f"pip uninstall -y {' '.join(found)} && pip install {right}",
        )
    if not found:
        return Check(name="nccl", grade="info", text="no wheel: ranks on CPU do not need one")
    text = f"{found[0]} {versions[found[0]]}"
    if wanted is not None and versions[found[0]] != wanted:
        text += f"; this torch was built with {wanted}"
        mend = f"pip install {found[0]}=={wanted}"
        return Check(name="nccl", grade="warn", text=text, mend=mend)
    return Check(name="nccl", grade="pass", text=text)
