"""Embedding look-up against its reference, in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from tests.kernels import interpreting  # noqa: F401

# isort: split
from panel.kernels.embedding import look_up, look_up_reference


@pytest.mark.parametrize("width", [64, 1000, 1500])
def test_tokens_may_be_those_sampled_last(width: int) -> None:
    table = torch.randn(50, width)
    sampled = torch.tensor([7, 49, 0])
    tokens = torch.tensor([3, -1, -3, 49, -2])
    found = look_up(tokens, sampled, table)
    assert torch.equal(found, table[[3, 7, 0, 49, 49]])
    assert torch.equal(found, look_up_reference(tokens, sampled, table))
