"""The kernels compile for the GPUs they are meant for, and keep their numbers in registers."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

triton = pytest.importorskip("triton", reason="triton has wheels for Linux on x86-64 only")

NEWER = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 8)
SPILLS = {("_together", "*fp32"): 40, ("_peer_sum", "*i32"): 8} if NEWER else {}
"""Bytes a thread that newer compilers spill: of a type for checks alone, before and after its loop;
of the sum of eight ranks' wide rows, once a row, which waits for them far longer."""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="triton's assembler is for x86-64")
def test_compile_for_sm90() -> None:
    """In a process of its own: the interpreter, once chosen, cannot be left."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.sm90_launches"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    compiled = json.loads(done.stdout)
    names = {each["name"] for each in compiled}
    assert names >= {"_prepare", "_attend", "_combine", "_together", "_survey", "_narrow", "_draw"}
    assert names >= {"_draft_input", "_prepare_groups", "_attend_groups", "_best_token"}
    assert names >= {"_follow_drafts", "_draft_places", "_keep_features"}
    assert "_lay_out_verification" in names
    assert names >= {"_choose_slots", "_find_places", "_permute", "_unpermute", "_unpack"}
    assert "_peer_sum" in names
    for each in compiled:
        allowed = SPILLS.get((each["name"], each["first"]), 0)
        assert each["stack"] <= allowed, f"{each['name']} spills {each['stack']} bytes a thread"
        assert each["shared"] <= 227 << 10, f"{each['name']} takes {each['shared']} bytes"
