"""The small kernels of a draft head against their references, in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.kernels.best_token import best_token, best_token_reference
from panel.kernels.draft_input import draft_input, draft_input_reference
from tests.kernels.test_latent import error, limit


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("placed", [False, True])
@pytest.mark.parametrize("normed", [False, True])
def test_input(dtype: torch.dtype, placed: bool, normed: bool) -> None:
    hidden = 80
    embedding, features = torch.randn(50, hidden).to(dtype), torch.randn(20, hidden).to(dtype)
    norms = [(torch.rand(hidden).to(dtype) * 9, torch.tensor(1e-3, dtype=dtype)) for _ in range(2)]
    tokens = torch.tensor([[3, 0], [49, 0], [0, 0]])[:, 0]
    places = torch.tensor([19, 0, 7]) if placed else None
    arguments = (tokens, embedding, norms[0], places, features, norms[1])
    for ours, wanted in zip(
        draft_input(*arguments, normed=normed),
        draft_input_reference(*arguments, normed=normed),
        strict=True,
    ):
        assert ours.dtype is dtype
        assert error(ours, wanted) < limit(dtype)


@pytest.mark.parametrize("columns", [7, 1024, 3000])
def test_best_token(columns: int) -> None:
    logits, ids = torch.randn(4, columns), torch.randperm(columns) + 5
    logits[1] = 0.5
    logits[2, columns - 2 :] = float("nan")
    logits[3] = float("-inf")
    out = torch.zeros(4, 3, dtype=torch.int64)
    best_token(logits, ids, out[:, 1])
    assert torch.equal(out[:, 1], best_token_reference(logits, ids))
    assert not out[:, ::2].any()
