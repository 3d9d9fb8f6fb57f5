from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """A rank that is forked once torch has used several threads stands still in its next sum."""
    torch.set_num_threads(1)
