"""Compile for sm_90 what launches would run, on a machine without a GPU.

Inside `sm90()` a launch compiles the kernel for its arguments and runs nothing. It needs the
compiler, so triton must have been imported without TRITON_INTERPRET.
"""

from __future__ import annotations

import inspect
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from unittest.mock import patch

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

_TYPES = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.uint8: "*u8",
    torch.bool: "*i1",
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """One specialisation of a kernel."""

    name: str
    first: str
    """Type of the first argument: *bf16."""
    registers: int
    stack: int
    """Bytes a thread keeps in memory: spilled registers."""
    shared: int
    """Bytes of shared memory."""
    ptx: str


@contextmanager
def sm90() -> Iterator[list[Compiled]]:
    """Yield the list that every launch inside adds to."""
    found: list[Compiled] = []

    def run(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
        found.append(_compile(self, args, kwargs))

    with patch.object(JITFunction, "run", run):
        yield found


def _compile(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Compiled:
    names = [parameter.name for parameter in kernel.params]
    bound = inspect.signature(kernel.fn).bind(
        *args, **{k: kwargs.pop(k) for k in names if k in kwargs}
    )
    signature, constants, attributes = {}, {}, {}
    for place, parameter in enumerate(kernel.params):
        value = bound.arguments[parameter.name]
        open_ = parameter.do_not_specialize and isinstance(value, int)
        signature[parameter.name] = kind = "i32" if open_ else _kind(parameter.is_constexpr, value)
        if kind == "constexpr":
            constants[(place,)] = value
        elif open_:
            continue
        elif isinstance(value, torch.Tensor) or (isinstance(value, int) and value % 16 == 0):
            attributes[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constants, attributes)
    binary = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=kwargs)
    usage = _usage(binary.asm["cubin"])
    return Compiled(
        kernel.fn.__name__,
        signature[names[0]],
        usage["REG"],
        usage["STACK"],
        binary.metadata.shared,
        binary.asm["ptx"],
    )


def _kind(constant: bool, value: Any) -> str:
    if constant or value is None or (isinstance(value, int) and value == 1):
        return "constexpr"
    if isinstance(value, torch.Tensor):
        return _TYPES[value.dtype]
    return "fp32" if isinstance(value, float) else "i32"


def _usage(cubin: bytes) -> dict[str, int]:
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    return {name: int(number) for name, number in re.findall(r"(REG|STACK):(\d+)", said)}
