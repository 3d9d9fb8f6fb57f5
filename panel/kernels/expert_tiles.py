"""What one program of a matrix product does: some rows times some columns, over all of the inner
dimension, with float32 accumulation; float32 is multiplied as such.

The weights stream past: they are read in lines of `BN` columns, `stages` blocks ahead. With `SWAP`
they are the tall side of the product, which lets Hopper's wgmma (64 rows at least) serve few rows
of input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import triton
import triton.language as tl


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

    def fitted(self, itemsize: int, limit: int, *, gated: bool) -> Tile:
        """Return the tile, or a smaller one of the same rows, for `limit` bytes of shared memory.

        `gated`: a program has twice the columns, gates and ups.
        """
        tile, factor = self, 2 if gated else 1
        while True:
            width = factor * tile.columns
            block = (tile.rows + width) * tile.inner * itemsize
            result = tile.rows * width * 4
            if max(tile.stages * block, result) + RESERVED <= limit:
                return tile
            if tile.stages > 2 and result + RESERVED <= limit:
                tile = replace(tile, stages=tile.stages - 1)
            elif tile.inner > 32 and result + RESERVED <= limit:
                tile = replace(tile, inner=tile.inner // 2)
            elif tile.columns > 16:
                tile = replace(tile, columns=tile.columns // 2)
            else:
                return tile


RESERVED = 2048
"""Bytes of shared memory that the compiler may want besides the blocks."""


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
    """Return float32 [BM, BN], turned where `SWAP`: `source` rows [begin, end) times `weights`.

    `source` [BM]: where each row begins; `line`: elements from one row of `weights` to the next;
    `column` [BN]: the columns, of which those that are not in `exists` give 0.
    """
    inner = tl.arange(0, BK)
    # Weights that few rows use are read once; those that many use stay in the L2 cache.
    KEEP: tl.constexpr = "" if BM >= 64 else "evict_first"  # noqa: N806
    total = tl.zeros([BN, BM] if SWAP else [BM, BN], dtype=tl.float32)
    for start in range(begin, end, BK):
        k = start + inner
        at = weights + k[:, None] * line + column[None, :]
        if EVEN:
            x = tl.load(source[:, None] + k[None, :], mask=here[:, None], other=0.0)
            w = tl.load(at, mask=exists[None, :], other=0.0, eviction_policy=KEEP)
        else:
            within = k < end
            x = tl.load(
                source[:, None] + k[None, :], mask=here[:, None] & within[None, :], other=0.0
            )
            w = tl.load(at, mask=within[:, None] & exists[None, :], other=0.0, eviction_policy=KEEP)
        if SWAP:
            total = tl.dot(tl.trans(w), tl.trans(x), total, input_precision="ieee")
        else:
            total = tl.dot(x, w, total, input_precision="ieee")
    return total


@triton.jit  # type: ignore[untyped-decorator]
def multiply_plain(  # type: ignore[no-untyped-def]
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
    """Return float32 [BM, BN]; see `multiply`."""
    total = multiply(
        source, here, weights, line, begin, end, column, exists, BM, BN, BK, SWAP, EVEN
    )
    if SWAP:
        total = tl.trans(total)
    return total


@triton.jit  # type: ignore[untyped-decorator]
def multiply_gated(  # type: ignore[no-untyped-def]
    source,
    here,
    weights,
    columns,
    length,
    first,
    BM: tl.constexpr,  # noqa: N803
    BN: tl.constexpr,  # noqa: N803
    BK: tl.constexpr,  # noqa: N803
    SWAP: tl.constexpr,  # noqa: N803
    EVEN: tl.constexpr,  # noqa: N803
):
    """Return `silu(gates) * ups`, float32 [BM, BN], of the columns from `first` on.

    `weights` [length, 2 * columns] has all gates, then all ups: one product computes both.
    """
    both = tl.arange(0, 2 * BN)
    within = first + both % BN
    column = both // BN * columns + within
    total = multiply(
        source, here, weights, 2 * columns, 0, length, column, within < columns,
        BM, 2 * BN, BK, SWAP, EVEN,
    )  # fmt: skip
    if SWAP:
        gates, ups = tl.split(tl.permute(tl.reshape(total, [2, BN, BM]), [1, 2, 0]))
        result = tl.trans(gated(gates, ups))
    else:
        gates, ups = tl.split(tl.permute(tl.reshape(total, [BM, 2, BN]), [0, 2, 1]))
        result = gated(gates, ups)
    return result


@triton.jit
def gated(gates, ups):  # type: ignore[no-untyped-def]
    """Return `silu(gates) * ups`."""
    return gates / (1.0 + tl.exp(-gates)) * ups
