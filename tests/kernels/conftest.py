"""All kernels run in Triton's interpreter here; it must be chosen before triton is imported."""

import os
import sys

import pytest

if "triton" in sys.modules and "TRITON_INTERPRET" not in os.environ:
    raise pytest.UsageError("triton was imported without its interpreter: name tests/kernels first")
os.environ.setdefault("TRITON_INTERPRET", "1")
