"""Which libraries an engine stands on, by the folders of its interpreter: nothing is run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

WATCHED = frozenset(
    (
        "torch",
        "triton",
        "transformers",
        "flashinfer-python",
        "flashinfer-cubin",
        "nvidia-nccl-cu12",
        "nvidia-nccl-cu13",
        "nvidia-cutlass-dsl",
        "sgl-kernel",
        "sglang-kernel",
        "deep-gemm",
        "deep-ep",
        "xgrammar",
    )
)
"""Those whose change has broken launches."""
_FOLDER = re.compile(r"(?P<name>.+)-(?P<version>\d[^-]*)\.dist-info")


def libraries(python: str = "") -> dict[str, str]:
    """Return versions by name; `python` is the interpreter, empty: this one."""
    root = Path(python).parent.parent if python else Path(sys.prefix)
    found = {}
    for folder in root.glob("lib/python3*/site-packages/*.dist-info"):
        match = _FOLDER.fullmatch(folder.name)
        name = match["name"].replace("_", "-").lower() if match else ""
        if match and name in WATCHED:
            found[name] = match["version"]
    return dict(sorted(found.items()))
