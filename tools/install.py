"""Make the virtual environment of `make run` and `make test`, with the engine that fits.

Where no NVIDIA driver answers the engine is installed for the CPU (constraints/cpu.txt). With a
driver, the extra follows the CUDA version that the driver speaks: the wheels nvidia-nccl-cu12 and
nvidia-nccl-cu13 overwrite each other's files, so just one of them may ever be installed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def driver_cuda() -> int | None:
    """Return the major CUDA version that the NVIDIA driver speaks, or None without a driver."""
    try:
        answer = subprocess.run(
            ["nvidia-smi"], capture_output=True, text=True, timeout=60, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"CUDA Version:\s*(\d+)", answer)
    return int(found.group(1)) if found else None


def requirement(cuda: int | None, extras: list[str]) -> list[str]:
    """Return pip's arguments for the package with the engine that fits."""
    engine = "engine" if cuda is None else "cuda13" if cuda >= 13 else "cuda12"
    words = ["--editable", f".[{','.join([engine, *extras])}]"]
    return words if cuda is not None else [*words, "--constraint", "constraints/cpu.txt"]


def main() -> None:
    """`install.py FOLDER [EXTRA …]`"""
    folder, extras = Path(sys.argv[1]), sys.argv[2:]
    if not (folder / "bin" / "python").exists():
        venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run(pip + requirement(driver_cuda(), extras), cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
