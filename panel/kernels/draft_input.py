"""What a draft head's layer looks at: tokens and features side by side, each normalised.

A program does a token or a feature of one row: look-up, norm, and for the feature what goes on past
the attention. Bytes moved: two rows in, three out; it is bound by the launch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from panel.kernels.norm import Norm, rms_norm_reference


def draft_input_reference(
    tokens: torch.Tensor,
    embedding: torch.Tensor,
    embedding_norm: Norm,
    places: torch.Tensor | None,
    features: torch.Tensor,
    feature_norm: Norm,
    *,
    normed: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return [rows, 2 * hidden], and what goes on, [rows, hidden].

    Shapes: tokens int64 [rows], embedding [vocabulary, hidden], features [places, hidden], places
    int64 [rows]; None: the feature of row n is the nth. The feature goes on as it is or `normed`.
    """
    seen = features[: tokens.shape[0]] if places is None else features[places]
    token = rms_norm_reference(embedding[tokens], *embedding_norm)
    feature = rms_norm_reference(seen, *feature_norm)
    return torch.cat((token, feature), dim=1), feature if normed else seen


def draft_input(
    tokens: torch.Tensor,
    embedding: torch.Tensor,
    embedding_norm: Norm,
    places: torch.Tensor | None,
    features: torch.Tensor,
    feature_norm: Norm,
    *,
    normed: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Do what `draft_input_reference` does; all tensors but `tokens` are contiguous."""
    rows, hidden = tokens.shape[0], embedding.shape[1]
    both = embedding.new_empty((rows, 2 * hidden))
    going_on = embedding.new_empty((rows, hidden))
    block = triton.next_power_of_2(hidden)
    _draft_input[(rows, 2)](
        tokens,
        embedding,
        *embedding_norm,
        tokens if places is None else places,
        features,
        *feature_norm,
        both,
        going_on,
        tokens.stride(0),
        hidden,
        PLACED=places is not None,
        NORMED=normed,
        BLOCK=block,
        num_warps=min(16, max(1, block // 512)),
    )
    return both, going_on


@triton.jit(do_not_specialize=["tokens_row"], do_not_specialize_on_alignment=["tokens"])  # type: ignore[untyped-decorator]
def _draft_input(  # type: ignore[no-untyped-def]
    tokens,
    embedding,
    token_gain,
    token_floor,
    places,
    features,
    feature_gain,
    feature_floor,
    both,
    going_on,
    tokens_row,
    hidden,
    PLACED: tl.constexpr,  # noqa: N803
    NORMED: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    row, side = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, BLOCK)
    inside = column < hidden
    if side == 0:
        source = embedding + tl.load(tokens + row * tokens_row) * hidden
        least = tl.load(token_floor).to(tl.float32)
        gain = tl.load(token_gain + column, mask=inside, other=0.0).to(tl.float32)
    else:
        place = row
        if PLACED:
            place = tl.load(places + row)
        source = features + place * hidden
        least = tl.load(feature_floor).to(tl.float32)
        gain = tl.load(feature_gain + column, mask=inside, other=0.0).to(tl.float32)
    read = tl.load(source + column, mask=inside, other=0.0)
    wide = read.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) + least * least)
    result = (wide * scale * gain).to(both.dtype.element_ty)
    tl.store(both + (2 * row + side) * hidden + column, result, mask=inside)
    if side == 1:
        passed = result if NORMED else read
        tl.store(going_on + row * hidden + column, passed, mask=inside)
