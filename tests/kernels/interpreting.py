"""Triton's interpreter, with loops over device values that work with numpy 2.4.

Triton turns an array of one element into a Python number, which numpy refuses since 2.4. Its
patches hold in a scope that it hands over; in 3.5 they hold for good.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton", reason="triton has wheels for Linux on x86-64 only")

from triton.runtime import interpreter

_original = interpreter._patch_lang_tensor


def _patched(tensor: Any, *scope: Any) -> None:
    _original(tensor, *scope)
    put = scope[0].set_attr if scope else setattr
    put(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = _patched
