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
    assert [kernel["name"] for kernel in found["one"]] == [
        "_expert_logits",
        "_expert_gate_up_few",
        "_expert_down",
    ]
    for name, kernels in found.items():
        small = "float32" in name or name == "small card"
        for kernel in kernels:
            assert kernel["stack"] == 0, (name, kernel["name"])
            assert kernel["shared"] <= (99 if small else 227) << 10, (name, kernel["name"])
            assert "tf32" not in kernel["ptx"]
    for kernel in found["one"][1:]:
        assert "wgmma" in kernel["ptx"]
        assert "cp.async.cg.shared.global" in kernel["ptx"], "loads of 16 bytes"
    assert sum("wgmma" in kernel["ptx"] for kernel in found["many"]) == 2
