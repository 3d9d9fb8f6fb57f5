"""What one program of a matrix product does: some rows times some columns, over all of the inner
dimension, with float32 accumulation.

The weights stream past: they are read once, in lines of `BN` columns, `stages` blocks ahead. With
`SWAP` they are the tall side of the product, which lets Hopper's wgmma (64 rows at least) serve few
rows of input.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl

from panel.kernels.overlap import prefetch

LINE_ELEMENTS = tl.constexpr(64)
"""Elements of two bytes in a line of the L2 cache."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The shape of a program's work, in elements."""

    rows: int
    columns: int
    inner: int
    stages: int = 4
    warps: int = 4
    swap: bool = False
    group: int = 1
    """Row tiles that run side by side on the same columns."""

    def __str__(self) -> str:
        turned = " turned" if self.swap else ""
        shape = f"{self.rows}x{self.columns}x{self.inner}{turned}"
        return f"{shape} stages {self.stages} warps {self.warps} group {self.group}"

    def launch(self, *inner: int) -> dict[str, int | bool]:
        """The compile-time parameters, for these inner dimensions."""
        return {
            "BM": self.rows,
            "BN": self.columns,
            "BK": self.inner,
            "SWAP": self.swap,
            "EVEN": all(length % self.inner == 0 for length in inner),
            "num_stages": self.stages,
            "num_warps": self.warps,
        }


@triton.jit  # type: ignore[untyped-decorator]
def multiply(  # type: ignore[no-untyped-def]
    source,
    here,
    weights,
    line,
    begin,
    end,
    column,
    exists,
    BM: tl.constexpr,  # noqa: N803
    BN: tl.constexpr,  # noqa: N803
    BK: tl.constexpr,  # noqa: N803
    SWAP: tl.constexpr,  # noqa: N803
    EVEN: tl.constexpr,  # noqa: N803
):
    """Return float32 [BM, BN] of `source` rows [begin, end) times `weights` columns.

    `source` [BM]: where each row begins; `line`: elements from one row of `weights` to the next.
    """
    inner = tl.arange(0, BK)
    total = tl.zeros([BN, BM] if SWAP else [BM, BN], dtype=tl.float32)
    for start in range(begin, end, BK):
        k = start + inner
        if EVEN:
            x = tl.load(source[:, None] + k[None, :], mask=here[:, None], other=0.0)
            w = tl.load(
                weights + k[:, None] * line + column[None, :],
                mask=exists[None, :],
                other=0.0,
                eviction_policy="evict_first",
            )
        else:
            within = k < end
            x = tl.load(
                source[:, None] + k[None, :], mask=here[:, None] & within[None, :], other=0.0
            )
            w = tl.load(
                weights + k[:, None] * line + column[None, :],
                mask=within[:, None] & exists[None, :],
                other=0.0,
                eviction_policy="evict_first",
            )
        total = product(x, w, total, SWAP)
    if SWAP:
        total = tl.trans(total)
    return total


@triton.jit  # type: ignore[untyped-decorator]
def multiply_gated(  # type: ignore[no-untyped-def]
    source,
    here,
    gain,
    weights,
    line,
    columns,
    inner_length,
    column,
    exists,
    BM: tl.constexpr,  # noqa: N803
    BN: tl.constexpr,  # noqa: N803
    BK: tl.constexpr,  # noqa: N803
    SWAP: tl.constexpr,  # noqa: N803
    EVEN: tl.constexpr,  # noqa: N803
    NORM: tl.constexpr,  # noqa: N803
):
    """Return gates and ups, float32 [BM, BN], and the squared lengths of the rows [BM].

    `weights` has all gates, then all ups; with `NORM` the rows are multiplied by `gain` first.
    """
    inner = tl.arange(0, BK)
    gates = tl.zeros([BN, BM] if SWAP else [BM, BN], dtype=tl.float32)
    ups = tl.zeros([BN, BM] if SWAP else [BM, BN], dtype=tl.float32)
    squares = tl.zeros([BM, BK if NORM else 1], dtype=tl.float32)
    for start in range(0, inner_length, BK):
        k = start + inner
        at = weights + k[:, None] * line + column[None, :]
        if EVEN:
            x = tl.load(source[:, None] + k[None, :], mask=here[:, None], other=0.0)
            readable = exists[None, :]
        else:
            within = k < inner_length
            x = tl.load(
                source[:, None] + k[None, :], mask=here[:, None] & within[None, :], other=0.0
            )
            readable = within[:, None] & exists[None, :]
        gate = tl.load(at, mask=readable, other=0.0, eviction_policy="evict_first")
        up = tl.load(at + columns, mask=readable, other=0.0, eviction_policy="evict_first")
        if NORM:
            wide = x.to(tl.float32)
            squares += wide * wide
            factor = tl.load(gain + k, mask=k < inner_length, other=0.0).to(tl.float32)
            x = (wide * factor[None, :]).to(x.dtype)
        gates = product(x, gate, gates, SWAP)
        ups = product(x, up, ups, SWAP)
    if SWAP:
        gates, ups = tl.trans(gates), tl.trans(ups)
    return gates, ups, tl.sum(squares, axis=1)


@triton.jit  # type: ignore[untyped-decorator]
def prefetch_columns(  # type: ignore[no-untyped-def]
    weights,
    line,
    begin,
    end,
    first,
    columns,
    BN: tl.constexpr,  # noqa: N803
    BK: tl.constexpr,  # noqa: N803
    OVERLAP: tl.constexpr,  # noqa: N803
):
    """Bring rows [begin, end) of `BN` columns from `first` on into the L2 cache."""
    if OVERLAP:
        for start in range(begin, end, BK):
            k = tl.minimum(start + tl.arange(0, BK), end - 1)
            for step in tl.static_range(0, BN, LINE_ELEMENTS):
                prefetch(weights + k * line + tl.minimum(first + step, columns - 1), OVERLAP)


@triton.jit  # type: ignore[untyped-decorator]
def product(x, w, total, SWAP: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Return `total` and the product of x [BM, BK] and w [BK, BN], turned where `SWAP`."""
    return tl.dot(tl.trans(w), tl.trans(x), total) if SWAP else tl.dot(x, w, total)


@triton.jit
def gated(gates, ups):  # type: ignore[no-untyped-def]
    """Return `silu(gates) * ups`."""
    return gates / (1.0 + tl.exp(-gates)) * ups
