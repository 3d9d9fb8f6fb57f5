"""The kernels compile for Hopper, without spilled registers, with the instructions meant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

triton = pytest.importorskip("triton", reason="triton has wheels for Linux on x86-64 only")

TOOL = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


@pytest.mark.skipif(not TOOL.exists(), reason="this triton comes without NVIDIA's tools")
def test_compiled_for_hopper(tmp_path: Path) -> None:
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    said = subprocess.run(
        [sys.executable, "-m", "tests.kernels.sm90_experts"],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    launches = {rows: len(kernels) for rows, kernels in found.items()}
    assert launches["2"] == 3
    for kernel in found["2"] + found["64"]:
        assert kernel["stack"] == 0
        assert kernel["shared"] <= 227 << 10
    products = [kernel for kernel in found["2"] if "mma" in kernel["ptx"]]
    assert len(products) == 3
    for kernel in products:
        assert "cp.async.cg.shared.global" in kernel["ptx"], "loads of 16 bytes"
    assert sum("wgmma" in kernel["ptx"] for kernel in found["2048"]) == 3
